"""A real model is the same before, during and after a run: nothing of ours in it, and nothing it does looks different."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import weave

from .llama import llama, tokens
from .stitching import EXT, knot, ports, touched

HOOKS = [name for name in nn.Module().__dict__ if "hook" in name]


def picture(module: nn.Module) -> list[Any]:
    """All that can be seen of a module without calling it."""
    return [
        (
            name,
            type(m),
            list(m.__dict__),
            {k: id(v) for k, v in m.__dict__.items()},
            {hooks: list(m.__dict__[hooks].items()) for hooks in HOOKS if isinstance(m.__dict__[hooks], dict)},
            [(k, id(p), p._version) for k, p in m._parameters.items() if p is not None],
            [(k, id(b), b._version) for k, b in m._buffers.items() if b is not None],
        )
        for name, m in module.named_modules()
    ]


def observes(model: nn.Module) -> tuple[Any, tuple[Any, Any]]:
    stitched = ports(
        model, ["model.layers.1", "model.layers.0.mlp.up_proj", ""], ["model.layers.1.self_attn", "model.norm"]
    )
    return stitched, ({"x": tokens()}, {})


def overrides(model: nn.Module) -> tuple[Any, tuple[Any, Any]]:
    name = "model.layers.1.mlp"
    return ports(model, ["model.layers.2"], new_outputs=[name]), ({"x": tokens()}, {name: torch.zeros(2, 7, 32)})


def caches(model: nn.Module) -> tuple[Any, tuple[Any, Any]]:
    stitched = ports(
        model, ["model.layers.2"], capture_cache_outputs_predicate=lambda name, m: name.startswith("model.layers.")
    )
    return stitched, ({"x": tokens()}, {})


def raises(model: nn.Module) -> tuple[Any, tuple[Any, Any]]:
    name = "model.layers.1.mlp"
    return ports(model, [""], new_outputs=[name]), ({"x": tokens()}, {name: torch.zeros(2, 7, 31)})


def misses(model: nn.Module) -> tuple[Any, tuple[Any, Any]]:
    m = weave.ModuleTarget("m", model)
    return knot((EXT.input("x"), m.input("")), (m.output("model.norm", call=5), EXT.output("y"))), ({"x": tokens()}, {})


KINDS: list[Callable[[nn.Module], Any]] = [observes, overrides, caches, raises, misses]


@pytest.fixture(params=KINDS, ids=lambda f: f.__name__)
def run(request: pytest.FixtureRequest) -> Callable[[nn.Module], None]:
    """Run a graph on a model, whether it raises or not."""

    def once(model: nn.Module) -> None:
        stitched, given = request.param(model)
        if request.param in (raises, misses):
            with pytest.raises(RuntimeError):
                stitched(*given)
        else:
            stitched(*given)

    return once


def files_of(model: Any, folder: Path) -> dict[str, bytes]:
    model.save_pretrained(folder)
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir())}


def test_nothing_can_be_seen_of_it(run: Callable[[nn.Module], None]) -> None:
    model = llama()
    model(tokens(), output_hidden_states=True)  # transformers puts hooks of its own on at the first such call
    before = picture(model)
    run(model)
    assert picture(model) == before


def test_what_is_saved_of_it_is_the_same(run: Callable[[nn.Module], None], tmp_path: Path) -> None:
    model = llama()
    files = files_of(model, tmp_path / "before")  # first: transformers notes its class in the config when saving
    pickled, state = pickle.dumps(model), copy.deepcopy(model.state_dict())
    run(model)
    assert pickle.dumps(model) == pickled
    assert list(model.state_dict()) == list(state)
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
    assert files_of(model, tmp_path / "after") == files
    assert len(files) >= 2


def test_what_it_computes_is_the_same(run: Callable[[nn.Module], None]) -> None:
    model, ids = llama(), tokens()
    with torch.no_grad():
        want = model(ids, output_hidden_states=True, output_attentions=True)
        generated = model.generate(ids, max_new_tokens=4, do_sample=False, pad_token_id=0)
        run(model)
        got = model(ids, output_hidden_states=True, output_attentions=True)
        assert torch.equal(got.logits, want.logits)
        assert len(got.hidden_states) == 4
        assert all(map(torch.equal, got.hidden_states, want.hidden_states))
        assert all(map(torch.equal, got.attentions, want.attentions))
        assert torch.equal(model.generate(ids, max_new_tokens=4, do_sample=False, pad_token_id=0), generated)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.parametrize("kind", [observes, raises], ids=lambda f: f.__name__)
def test_it_still_compiles_in_one_graph(kind: Callable[[nn.Module], Any]) -> None:
    torch._dynamo.reset()
    model, ids = llama(2), tokens()
    with torch.no_grad():
        want = model(ids, use_cache=False).logits
        name = "model.layers.1.mlp"
        if kind is observes:
            ports(model, ["model.layers.1.mlp", ""], ["model.norm"])({"x": ids}, {})
        else:
            with pytest.raises(RuntimeError):
                ports(model, [""], new_outputs=[name])({"x": ids}, {name: torch.zeros(2, 7, 31)})
        compiled = torch.compile(model, fullgraph=True, backend="eager")
        assert torch.allclose(compiled(ids, use_cache=False).logits, want, atol=1e-6)
    torch._dynamo.reset()


def test_hidden_states_asked_of_a_run_are_those_of_a_plain_call() -> None:
    model, ids = llama(), tokens()
    with torch.no_grad():
        want = model(ids, output_hidden_states=True)
        got = ports(model, ["", "model.layers.1"])({"x": weave.InputArgs(ids, output_hidden_states=True)}, {})
    assert all(map(torch.equal, got[""].hidden_states, want.hidden_states))
    assert torch.equal(got["model.layers.1"], want.hidden_states[2])
    assert type(got[""]) is type(want)


@pytest.mark.parametrize("where", ["in a hook", "in a function of the graph", "in an adapter"])
def test_a_deep_copy_made_during_a_run_is_an_independent_plain_model(where: str) -> None:
    model, ids, twins = llama(), tokens(), []
    clean = pickle.dumps(model)

    def look() -> None:
        twins.append((copy.deepcopy(model), pickle.dumps(model), touched(model)))

    m = weave.ModuleTarget("m", model)

    def adapter(value: Any) -> Any:
        if where == "in an adapter":
            look()
        return value

    def function(value: Any) -> Any:
        if where == "in a function of the graph":
            look()
        return value

    f = weave.FunctionTarget("f", function)
    stitched = knot(
        (EXT.input("x"), m.input("")),
        (m.output("model.layers.0", adapter=adapter), f.input()),
        (f.output(), EXT.output("0")),
        (m.output(""), EXT.output("y")),
    )
    want = model(ids).logits
    handle = None
    if where == "in a hook":
        handle = model.model.norm.register_forward_pre_hook(_Looks(look))
    stitched({"x": ids}, {})
    if handle is not None:
        handle.remove()
    ((twin, pickled, held),) = twins
    if where == "in a hook":
        twin.model.norm._forward_pre_hooks.clear()
    else:
        assert pickled == clean
    assert held == ([] if where == "in a function of the graph" else ["", "model.layers.0"])
    assert touched(twin) == []
    assert [type(m) for m in twin.modules()] == [type(m) for m in model.modules()]
    assert torch.equal(twin(ids).logits, want)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    assert torch.equal(twin(ids).logits, want), "it calls its own weights"
    assert torch.equal(ports(twin, ["model.layers.0", ""])({"x": ids}, {})[""].logits, want), "and can be stitched"


class _Looks:
    """A hook that is left out of the copies that it makes."""

    def __init__(self, look: Callable[[], None]) -> None:
        self.look = look

    def __call__(self, module: nn.Module, args: Any) -> None:
        self.look()

    def __deepcopy__(self, memo: Any) -> _Looks:
        return _Looks(lambda: None)

    def __reduce__(self) -> Any:
        return _Looks, (print,)


def test_a_stitched_real_model_copies_and_trains_like_its_own() -> None:
    """`parameters()`, `eval()`, `named_modules()`: a StitchedModule among the modules of a program."""
    model = llama()
    stitched = ports(model, ["model.norm"])
    assert isinstance(stitched, weave.StitchedModule)
    assert [id(p) for p in stitched.parameters()] == [id(p) for p in model.parameters()]
    heads = [m for name, m in stitched.named_modules() if "lm_head" in name]
    assert heads == [model.lm_head]
    assert stitched.train() is stitched
    assert model.training
    stitched.eval()
    assert not model.training
    assert stitched.cpu() is stitched
    twin = copy.deepcopy(stitched)
    ids = tokens()
    assert torch.equal(twin({"x": ids}, {})["model.norm"], stitched({"x": ids}, {})["model.norm"])
    assert not {id(p) for p in twin.parameters()} & {id(p) for p in model.parameters()}
