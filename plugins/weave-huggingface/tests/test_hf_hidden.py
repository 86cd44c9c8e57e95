"""The named adapters and reducers, on the shapes that transformers' modules have had over the releases."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import pytest
import torch
import weave_huggingface
from hf_families import HIDDEN, Family, tokens
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPoolingAndCrossAttentions,
    CausalLMOutputWithPast,
)
from weave_huggingface import HuggingFaceTarget

from weave import ExternalTarget, FunctionTarget, InputArgs, ModuleTarget, PluginException, StitchedModuleException
from weave.plugins import PluginSet, Registry
from weave.testing import AdapterSuite, ReducerSuite

EXT = ExternalTarget()


def t(*numbers: float) -> torch.Tensor:
    return torch.tensor([float(n) for n in numbers])


A, B, C, D = t(1, 5), t(2, 3), t(3, 4), t(7, 7)
Pair = namedtuple("Pair", "hidden rest")


class TestHidden(AdapterSuite):
    plugin = weave_huggingface
    name = "hf.hidden"
    each_call = True
    examples = [
        (A, A),
        ((A, B), A),
        ((A,), A),
        ([A, None], A),
        (Pair(A, None), A),
        (BaseModelOutput(last_hidden_state=A, hidden_states=(B, A)), A),
        (InputArgs(A, B, mask=C), InputArgs(A)),
        (InputArgs(attention_mask=B, hidden_states=A), InputArgs(A)),
        (InputArgs(B, hidden_states=A), InputArgs(A)),
        (InputArgs((A, B), mask=C), InputArgs(A)),
    ]


class TestLogits(AdapterSuite):
    plugin = weave_huggingface
    name = "hf.logits"
    each_call = True
    examples = [
        (CausalLMOutputWithPast(logits=A), A),
        (CausalLMOutputWithPast(loss=B, logits=A), A),
        (InputArgs(CausalLMOutputWithPast(loss=B, logits=A)), InputArgs(A)),
    ]


class TestLastHiddenState(AdapterSuite):
    plugin = weave_huggingface
    name = "hf.last_hidden_state"
    each_call = True
    examples = [
        (BaseModelOutputWithPoolingAndCrossAttentions(last_hidden_state=A, pooler_output=B), A),
        (InputArgs(BaseModelOutput(last_hidden_state=A)), InputArgs(A)),
    ]


class TestHiddenIntoInput(ReducerSuite):
    plugin = weave_huggingface
    name = "hf.hidden"
    kind = "input"
    passes_one_through = False
    examples = [
        ([A], InputArgs(A), InputArgs()),
        ([A], InputArgs(A, C, mask=D), InputArgs(B, C, mask=D)),
        ([B, A], InputArgs(A, C), InputArgs(D, C)),
        ([A], InputArgs(hidden_states=A, mask=D), InputArgs(hidden_states=B, mask=D)),
        ([A], InputArgs(C, hidden_states=A), InputArgs(C, hidden_states=B)),
        ([InputArgs(hidden_states=A, mask=B)], InputArgs(A, mask=D), InputArgs(C, mask=D)),
        ([InputArgs((A, B))], InputArgs(A, mask=D), InputArgs(C, mask=D)),
        ([A], InputArgs((A, B), mask=D), InputArgs((C, B), mask=D)),
    ]


class TestHiddenIntoOutput(ReducerSuite):
    plugin = weave_huggingface
    name = "hf.hidden"
    kind = "output"
    passes_one_through = False
    examples = [
        ([A], A, B),
        ([B, A], A, C),
        ([A], (A, C), (B, C)),
        ([A], (A,), (B,)),
        ([A], [A, None], [B, None]),
        ([A], Pair(A, D), Pair(B, D)),
        ([(A, B)], (A, C), (D, C)),
        ([(A, B)], A, D),
        (
            [A],
            BaseModelOutput(last_hidden_state=A, hidden_states=(C, D)),
            BaseModelOutput(last_hidden_state=B, hidden_states=(C, D)),
        ),
        ([BaseModelOutput(last_hidden_state=A)], (A, None), (B, None)),
    ]


def adapter(name: str) -> Any:
    return Registry(PluginSet(weave_huggingface).records).adapter(name, "output").fn


def reducer(kind: str) -> Any:
    return Registry(PluginSet(weave_huggingface).records).reducer("hf.hidden", kind).fn


def test_a_model_output_keeps_what_it_is() -> None:
    original = BaseModelOutput(last_hidden_state=B, attentions=(C,))
    changed = reducer("output")(None, A, original, 0, [A])
    assert type(changed) is BaseModelOutput
    assert changed.last_hidden_state is A
    assert changed["last_hidden_state"] is A
    assert changed[0] is A
    assert changed.attentions is original.attentions
    assert original.last_hidden_state is B


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("hf.hidden", None, "NoneType"),
        ("hf.hidden", (), "tuple that begins with no tensor"),
        ("hf.hidden", (None, A), "tuple that begins with no tensor"),
        ("hf.hidden", InputArgs(), "0 positional argument.*no keywords"),
        ("hf.hidden", InputArgs(input_ids=A), "0 positional argument.*input_ids"),
        ("hf.hidden", InputArgs(None, mask=A), "1 positional argument.*mask"),
        ("hf.hidden", InputArgs((None, A)), "tuple that begins with no tensor"),
        ("hf.hidden", CausalLMOutputWithPast(logits=A), "CausalLMOutputWithPast with logits has none"),
        ("hf.logits", BaseModelOutput(last_hidden_state=A), "BaseModelOutput with last_hidden_state has none"),
        ("hf.logits", (A,), "return_dict=False"),
        ("hf.logits", A, "in a Tensor"),
        ("hf.logits", InputArgs(logits=A), "logits"),
        ("hf.last_hidden_state", CausalLMOutputWithPast(logits=A), "with logits has none"),
    ],
)
def test_what_has_none_is_refused(name: str, value: Any, said: str) -> None:
    with pytest.raises(StitchedModuleException, match=said) as raised:
        adapter(name)(value)
    assert f'"{name}"' in str(raised.value)


def test_what_has_no_place_for_them_is_refused() -> None:
    for original in (None, {"x": A}, (None, A), CausalLMOutputWithPast(logits=A)):
        with pytest.raises(StitchedModuleException, match=r"hf.hidden"):
            reducer("output")(None, A, original, 0, [A])
    with pytest.raises(StitchedModuleException, match="input_ids"):
        reducer("input")(InputArgs(), InputArgs(A), InputArgs(input_ids=B), 0, [])


def test_a_refusal_in_a_graph_names_the_port(tie: Any, family: Family) -> None:
    target = HuggingFaceTarget("m", family.model)
    with pytest.raises(StitchedModuleException, match=r"hf.hidden") as raised:
        tie((target.output("", adapter="hf.hidden"), EXT.output("x")))({}, {}, tokens())
    assert any("'m'" in note for note in raised.value.__notes__)


def test_at_either_end_of_a_stitch(tie: Any, family: Family) -> None:
    target = HuggingFaceTarget("m", family.model)
    norm = torch.nn.LayerNorm(HIDDEN)
    student = ModuleTarget("s", norm)
    attention = "block.1.attention"
    stitched = tie(
        (target.input(attention), student.input("", adapter="hf.hidden")),
        (student.output(""), EXT.output("a")),
        (target.input(attention, adapter="hf.hidden"), EXT.input("b")),
        (target.output(attention), EXT.output("c", adapter="hf.hidden")),
        (target.output(attention, adapter="hf.hidden"), EXT.output("d")),
    )
    out = stitched({}, {}, tokens())
    assert torch.equal(out["a"], norm(out.captured_inputs["b"].args[0]))
    assert torch.equal(out["c"], out["d"])


def test_logits_into_a_function(tie: Any, family: Family) -> None:
    target, f = HuggingFaceTarget("m", family.model), FunctionTarget("f", lambda x: x.shape)
    for stitch in (
        (target.output("", adapter="hf.logits"), f.input()),
        (target.output(""), f.input(adapter="hf.logits")),
    ):
        assert tie(stitch, (f.output(), EXT.output("y")))({}, {}, tokens())["y"] == (2, 7, 64)


def test_without_the_plugin_the_names_are_unknown(family: Family) -> None:
    from weave import Needle

    needle = Needle().stitch(HuggingFaceTarget("m", family.model).output("", adapter="hf.logits"), EXT.output("y"))
    with pytest.raises(PluginException, match=r"no adapter is called 'hf.logits'"):
        needle.knot(plugins=PluginSet())
