"""The two dicts that a call brings, and what it gives back."""

from __future__ import annotations

import types
from collections import ChainMap, OrderedDict
from collections.abc import Mapping
from typing import Any

import pytest
from torch import nn

from tests.small import EXT, knot, module, packed
from weave import FunctionTarget, InputArgs, OverridesException, StitchedModule, StitchedModuleOutput


def graph(**options: Any) -> StitchedModule:
    """Takes the inputs "alpha" and "both" and the outputs "omega" and "both"; gives back what a function was called with."""
    f = FunctionTarget("f", packed)
    ports = (EXT.input("alpha"), EXT.input("both"), EXT.output("omega"), EXT.output("both"))
    return knot(*[(port, f.input()) for port in ports], (f.output(), EXT.output("y")), **options)


INPUTS: dict[str, Any] = {"alpha": 1, "both": 2}
OUTPUTS: dict[str, Any] = {"omega": 3, "both": 4}


def refused(inputs: Any, outputs: Any, **options: Any) -> OverridesException:
    with pytest.raises(OverridesException) as raised:
        graph(**options)(inputs, outputs)
    return raised.value


def test_exactly_the_names_that_the_graph_takes() -> None:
    assert graph()(INPUTS, OUTPUTS)["y"] == ((1, 2, 3, 4), {})


def test_a_name_that_several_stitches_take_is_one_name() -> None:
    f = FunctionTarget("f", packed)
    stitched = knot((EXT.input("x"), f.input()), (EXT.input("x"), f.input()), (f.output(), EXT.output("y")))
    assert stitched({"x": 1}, {})["y"] == ((1, 1), {})


@pytest.mark.parametrize("kind", [dict, OrderedDict, ChainMap, types.MappingProxyType])
def test_any_mapping_will_do(kind: Any) -> None:
    assert isinstance(kind(INPUTS), Mapping)
    assert graph()(kind(INPUTS), kind(OUTPUTS))["y"] == ((1, 2, 3, 4), {})


def test_the_dicts_are_not_changed() -> None:
    inputs, outputs = dict(INPUTS), dict(OUTPUTS)
    graph()(inputs, outputs)
    assert (inputs, outputs) == (INPUTS, OUTPUTS)


def test_missing_names_are_listed() -> None:
    error = refused({"alpha": 1}, {})
    assert tuple(error.missing) == ("input 'both'", "output 'both'", "output 'omega'")
    assert tuple(error.extra) == ()
    assert set(error.expected) == {"input 'alpha'", "input 'both'", "output 'omega'", "output 'both'"}
    for name in (*error.missing, *error.expected):
        assert name in str(error)


def test_extra_names_are_listed_with_the_nearest() -> None:
    error = refused({**INPUTS, "alhpa": 1}, {**OUTPUTS, "omga": 2, "zzz": 3})
    assert tuple(error.missing) == ()
    assert len(error.extra) == 3
    message = str(error)
    for words in (
        "input 'alhpa' (did you mean 'alpha'?)",
        "output 'omga' (did you mean 'omega'?)",
        "output 'zzz' (there are",
    ):
        assert words in message
    assert "ignore_extra_overrides=True" in message


def test_a_name_in_the_other_dict() -> None:
    error = refused({"both": 2}, {**OUTPUTS, "alpha": 1})
    assert tuple(error.missing) == ("input 'alpha'",)
    assert "it belongs in input_overrides" in str(error)
    error = refused({**INPUTS, "omega": 3}, {"both": 4})
    assert "it belongs in output_overrides" in str(error)


def test_a_graph_that_takes_nothing_says_so() -> None:
    f = FunctionTarget("f", packed)
    with pytest.raises(OverridesException, match="none at all"):
        knot((f.output(), EXT.output("y")))({"x": 1}, {})


def test_it_is_no_bare_assert_and_no_bare_key_error() -> None:
    error = refused({}, {})
    assert isinstance(error, KeyError)
    assert str(error).startswith("wrong names"), "not its repr, as KeyError prints"


def test_nothing_runs_before_the_names_are_right() -> None:
    ran: list[Any] = []

    class Net(nn.Module):
        def forward(self, *args: Any) -> None:
            ran.append(args)

    m = module(Net())
    stitched = knot((EXT.input("x"), m.input("")), (m.output(""), EXT.output("y")))
    with pytest.raises(OverridesException):
        stitched({}, {})
    assert ran == []
    stitched({"x": 1}, {})
    assert ran == [(1,)]


def test_ignoring_extra_names() -> None:
    stitched = graph(ignore_extra_overrides=True)
    assert stitched({**INPUTS, "more": 1}, {**OUTPUTS, "alpha": 5})["y"] == ((1, 2, 3, 4), {})


def test_a_missing_name_is_always_an_error() -> None:
    error = refused({"both": 1, "more": 2}, OUTPUTS, ignore_extra_overrides=True)
    assert tuple(error.missing) == ("input 'alpha'",)
    assert tuple(error.extra) == ()


@pytest.mark.parametrize("wrong", [None, [1], "x", 3, InputArgs(1), ("alpha", "both")])
def test_what_is_no_dict(wrong: Any) -> None:
    with pytest.raises(TypeError, match=f"input_overrides is a {type(wrong).__name__}"):
        graph()(wrong, OUTPUTS)
    with pytest.raises(TypeError, match=f"output_overrides is a {type(wrong).__name__}"):
        graph()(INPUTS, wrong)


def test_both_dicts_are_due() -> None:
    stitched: Any = graph()
    with pytest.raises(TypeError):
        stitched(INPUTS)


def test_names_need_not_be_identifiers() -> None:
    f = FunctionTarget("f", packed)
    names = ["", "a.b", "with space", "self", "input_overrides", "args"]
    stitched = knot(*[(EXT.input(n), f.input()) for n in names], (f.output(), EXT.output("y")))
    assert stitched({n: i for i, n in enumerate(names)}, {})["y"] == (tuple(range(len(names))), {})


# --- what comes back ---


def output() -> StitchedModuleOutput:
    return StitchedModuleOutput({"i": InputArgs(1), "both": InputArgs(2)}, {"o": 3, "both": 4})


def test_by_name_the_output_else_the_input() -> None:
    out = output()
    assert out["o"] == 3
    assert out["i"] is out.captured_inputs["i"]


def test_a_name_that_is_both_is_ambiguous() -> None:
    with pytest.raises(KeyError, match=r"both a captured input and a captured output.*captured_inputs\['both'\]"):
        output()["both"]


def test_a_name_that_is_neither() -> None:
    with pytest.raises(KeyError, match="nothing was captured as 'oo'; did you mean 'o'"):
        StitchedModuleOutput({}, {"o": 1, "other": 2})["oo"]
    with pytest.raises(KeyError, match="there are none"):
        StitchedModuleOutput({}, {})["x"]


def test_a_result_that_is_none_is_a_result() -> None:
    assert StitchedModuleOutput({}, {"o": None})["o"] is None


def test_external_names_in_four_roles() -> None:
    """As a source and as a destination, an input and an output: four different things of one name."""
    f, g = FunctionTarget("x", lambda v: v + 1), FunctionTarget("x", lambda v: v * 10)
    stitched = knot(
        (EXT.input("x"), f.input()),
        (EXT.output("x"), g.input()),
        (f.output(), EXT.input("x")),
        (g.output(), EXT.output("x")),
    )
    out = stitched({"x": 1}, {"x": 5})
    assert out.captured_inputs["x"].args == [2]
    assert out.captured_outputs["x"] == 50


def test_the_result_stands_in_the_order_of_the_stitches() -> None:
    f = FunctionTarget("f", packed)
    stitched = knot(*[(f.output(), EXT.output(name)) for name in "zax"])
    assert list(stitched({}, {}).captured_outputs) == list("zax")
