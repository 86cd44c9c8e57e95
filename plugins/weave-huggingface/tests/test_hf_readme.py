"""What the README shows runs, and does what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import weave_huggingface
from test_hf_tokenizing import make

from weave.plugins import PluginSet

README = (Path(__file__).parent.parent / "README.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """What the snippets leave behind, one after another, with the plugin installed."""
    monkeypatch.setattr(PluginSet, "installed", lambda: PluginSet(weave_huggingface))
    torch.manual_seed(0)
    names: dict[str, Any] = {"tokenizer": make()}
    exec(SNIPPETS[0], names)
    names["llama"].save_pretrained(tmp_path)
    names["path"] = tmp_path
    for snippet in SNIPPETS[1:]:
        exec(snippet, names)
    return names


def test_three_lines_swap_an_mlp(names: dict[str, Any]) -> None:
    llama, small, ids = names["llama"], names["small"], names["ids"]
    *_, three, last = SNIPPETS[0].strip().split("\n\n")
    assert len(three.splitlines()) == 3
    assert len(last.splitlines()) == 1
    before = llama(ids).logits
    mlp = llama.model.layers[3].mlp
    assert not torch.equal(names["logits"], before)
    llama.model.layers[3].mlp = small
    assert torch.equal(names["logits"], llama(ids).logits)
    llama.model.layers[3].mlp = mlp
    assert torch.equal(llama(ids).logits, before)
    names["logits"].sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in small.parameters())
    assert all(p.grad is None for p in mlp.parameters()), "it is not computed"


def test_blocks_can_be_handed_over(names: dict[str, Any]) -> None:
    """As the README says, for a cheaper swap: the same logits, and the blocks in front run once."""
    needle, read, swapped = names["needle"], names["read"], names["swapped"]
    # The later snippets took the names; those that are in the needle are meant.
    read, swapped = (next(t for t in needle.nodes if t.name == name) for name in ("read", "swapped"))
    for block in range(3):
        needle.stitch(read.output(f"block.{block}"), swapped.output(f"block.{block}"))
    calls = []
    for layer in names["llama"].model.layers:
        layer.register_forward_hook(lambda *args: calls.append(args[0]))
    out = needle.knot()({}, {}, names["ids"], use_cache=False)
    torch.testing.assert_close(out["logits"], names["logits"])
    assert [list(names["llama"].model.layers).index(layer) for layer in calls] == [0, 1, 2, 3]


def test_hidden_states_were_put_and_taken(names: dict[str, Any]) -> None:
    out, llama, ids = names["out"], names["llama"], names["ids"]
    states = llama(ids, output_hidden_states=True).hidden_states
    seen = out.captured_inputs["seen"].args[0]
    assert torch.equal(seen, llama.model.layers[1].input_layernorm(states[1]))

    def nothing(module: Any, args: Any, output: Any) -> Any:
        return (torch.zeros_like(output[0]), *output[1:])

    handle = llama.model.layers[3].self_attn.register_forward_hook(nothing)
    assert torch.equal(out["logits"], llama(ids).logits)
    handle.remove()


def test_an_attention_is_replaced_without_running_it(names: dict[str, Any]) -> None:
    from weave_huggingface import HuggingFaceTarget

    from weave import ExternalTarget, Needle

    target, outside = HuggingFaceTarget("t", names["llama"]), ExternalTarget()
    port = target.output("block.3.attention", adapter=lambda hidden: (hidden, None))
    stitched = (
        Needle()
        .stitch(outside.output("heads"), port)
        .stitch(target.output("", adapter="hf.logits"), outside.output("logits"))
        .knot()
    )
    ran: list[Any] = []
    names["llama"].model.layers[3].self_attn.register_forward_hook(lambda *args: ran.append(args))
    out = stitched({}, {"heads": torch.zeros(2, 7, 32)}, names["ids"])
    assert not ran
    assert torch.equal(out["logits"], names["out"]["logits"])


def test_texts_are_read(names: dict[str, Any]) -> None:
    encoded = names["tokenizer"](["one text", "and another"], return_tensors="pt", padding=True)
    logits = names["reads"]({"texts": ["one text", "and another"]}, {})["logits"]
    assert torch.equal(logits, names["llama"](**encoded).logits)


def test_what_transformers_records_leaves_an_overridden_block_out(names: dict[str, Any]) -> None:
    """A limit that the README states."""
    from weave_huggingface import HuggingFaceTarget

    from weave import ExternalTarget, Needle

    target, outside = HuggingFaceTarget("t", names["llama"]), ExternalTarget()
    stitched = (
        Needle().stitch(outside.output("h"), target.output("block.1")).stitch(target.output(""), outside.output("y"))
    )
    out = stitched.knot()({}, {"h": torch.zeros(2, 7, 32)}, names["ids"], output_hidden_states=True, use_cache=False)
    assert len(out["y"].hidden_states) == len(names["llama"](names["ids"], output_hidden_states=True).hidden_states) - 1
