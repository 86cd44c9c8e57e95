"""A pipeline of ranks, imitated in one process: each calls its model with a fake input and computes its own blocks only.

An external input stands where a `RemoteTarget` will receive, an external output where it will send.
"""

from __future__ import annotations

import copy
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn

import weave
from weave.passage.fake import is_fake

from .llama import llama, tokens
from .stitching import EXT, keeps_kwargs, knot

BLOCKS = "model.layers."
KEEPS = weave.InputReducer(keeps_kwargs)


@pytest.fixture(autouse=True)
def without_gradients() -> Any:
    with torch.no_grad():
        yield


def blocks(name: str, module: nn.Module) -> bool:
    """The predicate that the seed's programs use: each block as a whole."""
    return name.startswith(BLOCKS) and name.count(".") == 2


class Rank:
    """One rank's graph on a model of its own. Blocks that are not its own hold no usable weights."""

    def __init__(self, model: nn.Module, first: int, last: int, **options: Any) -> None:
        model = self.model = copy.deepcopy(model)
        count = len(model.model.layers)
        self.first, self.last, self.ends = first, last, last == count - 1
        self.forwards: Counter[tuple[str, tuple[int, ...], bool]] = Counter()
        self.lock = threading.Lock()
        for name, module in model.named_modules():
            if blocks(name, module) or name in ("model.norm", "lm_head"):
                module.register_forward_pre_hook(lambda m, args, name=name: self.ran(name, args[0]))
            if blocks(name, module) and not first <= int(name.rsplit(".", 1)[1]) <= last:
                for parameter in module.parameters():
                    parameter.fill_(float("nan"))
        target = weave.ModuleTarget("model", model)
        out = "" if self.ends else f"{BLOCKS}{last}"
        stitches = [(target.output(out), EXT.output("sent"))]
        if first:
            stitches.insert(0, (EXT.input("received"), target.input(f"{BLOCKS}{first}", reducer=KEEPS)))
        self.graph = knot(
            *stitches, capture_cache_outputs_predicate=blocks, early_exit=True, ignore_extra_overrides=True, **options
        )

    def ran(self, name: str, x: torch.Tensor) -> None:
        with self.lock:
            self.forwards[name, tuple(x.shape), is_fake(x)] += 1

    def __call__(self, received: Any, ids: torch.Tensor, **words: Any) -> Any:
        return self.graph({"received": received, "not taken": 1}, {}, ids, **words)["sent"]


def pipeline(model: nn.Module, cuts: list[tuple[int, int]] | None = None) -> list[Rank]:
    return [Rank(model, first, last) for first, last in cuts or [(0, 1), (2, 2), (3, 4)]]


def through(ranks: list[Rank], ids: torch.Tensor, fake_batch: int = 1, **words: Any) -> torch.Tensor:
    """One batch through all ranks: the first has the tokens, the others a fake of them."""
    value = ranks[0](None, ids, **words)
    for rank in ranks[1:]:
        fake = weave.fake_tensor(fake_batch, ids.shape[1], dtype=torch.long, device="cpu")
        value = rank(value, fake, **words)
    return value.logits


def ran(rank: Rank, *, fake: bool) -> dict[str, int]:
    """How often each block ran on fakes, or on real values."""
    counts: Counter[str] = Counter()
    for (name, _, on_fakes), n in rank.forwards.items():
        if on_fakes is fake:
            counts[name.removeprefix(BLOCKS)] += n
    return dict(counts)


def test_exactly_the_logits_of_one_process() -> None:
    model = llama(5)
    ranks = pipeline(model)
    for turn in range(4):
        ids = tokens(seed=turn)
        assert torch.equal(through(ranks, ids), model(ids).logits)


def test_blocks_before_the_first_real_one_run_once_a_shape_and_none_behind_the_last() -> None:
    model = llama(5)
    ranks = pipeline(model)
    batches = [tokens(2, 7, 1), tokens(3, 5, 2), tokens(2, 7, 3), tokens(3, 5, 4), tokens(4, 7, 5), tokens(2, 7, 6)]
    for ids in batches:
        assert torch.equal(through(ranks, ids), model(ids).logits)
    assert ran(ranks[0], fake=True) == {}
    assert ran(ranks[0], fake=False) == {"0": 6, "1": 6}
    assert ran(ranks[1], fake=True) == {"0": 2, "1": 2}, "two lengths; the fake's batch is always 1"
    assert ran(ranks[1], fake=False) == {"2": 6}
    assert ran(ranks[2], fake=True) == {"0": 2, "1": 2, "2": 2}
    assert ran(ranks[2], fake=False) == {"3": 6, "4": 6, "model.norm": 6, "lm_head": 6}
    for rank in ranks[1:]:
        assert all(n == 1 for (_, _, on_fakes), n in rank.forwards.items() if on_fakes)


@pytest.mark.parametrize("fake_batch", [1, 3])
def test_the_fake_batch_may_be_another_than_the_received_one(fake_batch: int) -> None:
    """One of 1 broadcasts to whatever is received (masks, positions); any other must be the received one."""
    model = llama(5)
    ranks = pipeline(model)
    for batch in (3, 2, 4) if fake_batch == 1 else (3, 3):
        ids = tokens(batch, 7)
        assert torch.equal(through(ranks, ids, fake_batch), model(ids).logits)
    assert ran(ranks[2], fake=True) == {"0": 1, "1": 1, "2": 1}


@pytest.mark.parametrize("use_cache", [None, True, False])
def test_with_and_without_the_models_own_cache(use_cache: bool | None) -> None:
    model, ids = llama(5), tokens()
    ranks, words = pipeline(model), {} if use_cache is None else {"use_cache": use_cache}
    for _ in range(3):
        assert torch.equal(through(ranks, ids, **words), model(ids, **words).logits)
    assert ran(ranks[2], fake=True) == {"0": 1, "1": 1, "2": 1}


def test_two_models_with_the_same_names() -> None:
    models = [llama(5, seed=1), llama(5, seed=2, hidden=64)]
    all_ranks = [pipeline(model) for model in models]
    for turn in range(2):
        ids = tokens(seed=turn)
        for model, ranks in zip(models, all_ranks, strict=True):
            assert torch.equal(through(ranks, ids), model(ids).logits)
    assert [ran(ranks[1], fake=True) for ranks in all_ranks] == [{"0": 1, "1": 1}] * 2


def test_two_graphs_on_one_model_have_a_cache_each() -> None:
    model, ids = llama(5), tokens()
    m = weave.ModuleTarget("model", model)
    graphs = [
        knot(
            (EXT.input("h"), m.input(f"{BLOCKS}{k}", reducer=KEEPS)),
            (m.output(f"{BLOCKS}4"), EXT.output("h")),
            capture_cache_outputs_predicate=blocks,
        )
        for k in (2, 3)
    ]
    states = model(ids, output_hidden_states=True).hidden_states
    fake = weave.fake_tensor(1, 7, dtype=torch.long)
    want = _last_block(model, ids)
    for _ in range(2):
        for k, graph in zip((2, 3), graphs, strict=True):
            assert torch.equal(graph({"h": states[k]}, {}, fake)["h"], want)


def _last_block(model: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """What the last block gives (the model's own hidden states end with the norm's output)."""
    got: list[torch.Tensor] = []
    handle = model.model.layers[-1].register_forward_hook(lambda m, args, out: got.append(out))
    model(ids)
    handle.remove()
    return got[0]


def test_four_threads_on_the_same_graphs() -> None:
    model = llama(5)
    ranks = pipeline(model)
    shapes = [(2, 7), (3, 5)]
    wanted = {shape: (tokens(*shape), model(tokens(*shape)).logits) for shape in shapes}
    gate = threading.Barrier(4)

    def job(place: int) -> None:
        gate.wait()
        for turn in range(8):
            ids, want = wanted[shapes[(place + turn) % 2]]
            with torch.no_grad():
                assert torch.equal(through(ranks, ids), want)

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(job, place) for place in range(4)]:
            future.result()
    assert ran(ranks[1], fake=False) == {"2": 32}
    for rank in ranks[1:]:
        on_fakes = [n for (_, _, is_on_fakes), n in rank.forwards.items() if is_on_fakes]
        assert on_fakes
        assert set(on_fakes) == {1}, "a skipped block's forward runs at most once a shape, however many come at once"


def test_hooks_on_own_blocks_fire_once_a_batch_on_real_values() -> None:
    model, ids = llama(5), tokens()
    ranks = pipeline(model)
    seen: list[tuple[str, bool, torch.Size]] = []
    for name, module in ranks[1].model.named_modules():
        if name.startswith(f"{BLOCKS}2"):
            module.register_forward_hook(lambda m, args, out, name=name: seen.append((name, is_fake(out), m)))
    names = [name for name, _ in ranks[1].model.named_modules() if name.startswith(f"{BLOCKS}2")]
    for turn in range(3):
        seen.clear()
        through(ranks, tokens(seed=turn))
        assert Counter(name for name, _, _ in seen) == Counter(names)
        assert not any(on_fakes for _, on_fakes, _ in seen)
    assert torch.equal(through(ranks, ids), model(ids).logits)


def test_one_block_a_rank_and_all_blocks_on_one() -> None:
    model, ids = llama(3), tokens()
    for cuts in ([(0, 0), (1, 1), (2, 2)], [(0, 2)], [(0, 0), (1, 2)]):
        ranks = pipeline(model, cuts)
        for _ in range(2):
            assert torch.equal(through(ranks, ids), model(ids).logits)


def test_the_reducer_gets_the_calls_full_original() -> None:
    model, ids, originals = llama(3), tokens(), []

    def reducer(acc: Any, value: Any, original: Any, index: int, every: Any) -> Any:
        originals.append(original)
        return value + original.drop_args(0)

    m = weave.ModuleTarget("model", model)
    graph = knot(
        (EXT.input("h"), m.input(f"{BLOCKS}1", reducer=weave.InputReducer(reducer))),
        (m.output(""), EXT.output("y")),
        capture_cache_outputs_predicate=blocks,
    )
    h = model(ids, output_hidden_states=True).hidden_states[1]
    for _ in range(2):
        assert torch.equal(
            graph({"h": h}, {}, weave.fake_tensor(1, 7, dtype=torch.long))["y"].logits, model(ids).logits
        )
    first, second = originals
    assert first.args[0].shape == second.args[0].shape == (1, 7, 32)
    assert is_fake(first.args[0])
    assert is_fake(second.args[0])
    assert first.kwargs.keys() == second.kwargs.keys() >= {"attention_mask", "position_embeddings"}
    assert torch.equal(first.kwargs["position_embeddings"][0], second.kwargs["position_embeddings"][0])


def test_a_captured_inputs_fakes_come_out_as_none() -> None:
    model, ids = llama(3), tokens()
    m = weave.ModuleTarget("model", model)
    graph = knot(
        (EXT.input("h"), m.input(f"{BLOCKS}2", reducer=KEEPS)),
        (m.input(f"{BLOCKS}2"), EXT.input("real")),
        (m.input(f"{BLOCKS}1"), EXT.input("fake")),
        (m.input(""), EXT.input("ids")),
        (m.output(f"{BLOCKS}2"), EXT.output("h")),
        capture_cache_outputs_predicate=blocks,
    )
    h = model(ids, output_hidden_states=True).hidden_states[2]
    for _ in range(2):
        got = graph({"h": h}, {}, weave.fake_tensor(1, 7, dtype=torch.long))
        assert got.captured_inputs["real"].args[0] is h
        assert got.captured_inputs["fake"].args[0] is None
        assert isinstance(got.captured_inputs["fake"].kwargs["attention_mask"], torch.Tensor)
        assert got.captured_inputs["ids"].args == [None]


def test_a_captured_output_that_is_fake_is_an_error_naming_port_and_why() -> None:
    model = llama(3)
    m = weave.ModuleTarget("model", model)
    h = torch.randn(2, 7, 32)
    graph = knot(
        (EXT.input("h"), m.input(f"{BLOCKS}2", reducer=KEEPS)),
        (m.output(f"{BLOCKS}1"), EXT.output("h")),
        capture_cache_outputs_predicate=blocks,
    )
    for _ in range(2):
        with pytest.raises(weave.StitchedModuleException, match=r"model\.output\('model\.layers\.1'\).*fake") as raised:
            graph({"h": h}, {}, weave.fake_tensor(1, 7, dtype=torch.long))
        assert "fake_tensor" in str(raised.value)
    for call in ("last", "all"):
        graph = knot((m.output(f"{BLOCKS}1", call=call), EXT.output("h")), (EXT.input("x"), m.input("model.norm")))
        with pytest.raises(weave.StitchedModuleException, match=r"layers\.1.*fake"):
            graph({"x": h}, {}, weave.fake_tensor(1, 7, dtype=torch.long))


def test_the_same_program_at_world_size_one() -> None:
    """No remote, no override: the graph of a lone rank runs the whole model."""
    model, ids = llama(3), tokens()
    (rank,) = pipeline(model, [(0, 2)])
    assert torch.equal(rank(None, ids).logits, model(ids).logits)
    assert isinstance(rank.graph, weave.StitchedModule)
    assert any("lm_head" in name and m is rank.model.lm_head for name, m in rank.graph.named_modules())


# Autocast's copies of weights are no leaves, and torch looks at their `.grad` where it mixes them with fakes.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_under_autocast() -> None:
    model, ids = llama(3), tokens()
    ranks = pipeline(model, [(0, 0), (1, 2)])
    plain = through(ranks, ids)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for _ in range(2):
            assert torch.equal(through(ranks, ids), model(ids).logits)
    assert torch.equal(through(ranks, ids), plain)
    assert ran(ranks[1], fake=True) == {"0": 2}, "the cache tells autocast from none"


def test_inputs_embeds_in_place_of_tokens() -> None:
    model = llama(3)
    ranks = pipeline(model, [(0, 0), (1, 2)])
    embeds = torch.randn(2, 7, 32)
    hidden = ranks[0].graph({}, {}, inputs_embeds=embeds)["sent"]
    for _ in range(2):
        got = ranks[1].graph({"received": hidden}, {}, inputs_embeds=weave.fake_tensor(1, 7, 32))["sent"].logits
        assert torch.equal(got, model(inputs_embeds=embeds).logits)
    assert ran(ranks[1], fake=True) == {"0": 1}
