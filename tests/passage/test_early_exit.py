"""A forward is left as soon as everything that the graph wants of it was captured, and never looks different for it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import weave

from .nets import Again, Chain, Does, counting, lin, rows
from .stitching import ADDS, EXT, knot, ports, touched


def test_what_runs() -> None:
    net, x = Chain(), rows()
    ran = counting(net)

    def of(*args: Any, **options: Any) -> list[str]:
        ran.clear()
        ports(net, *args, **options)({"x": x}, {})
        return list(ran)

    assert of(["a"]) == ["", "a"]
    assert of(["b"]) == ["", "a", "b"]
    assert of(["b", "a"]) == ["", "a", "b"], "the last one in the forward's order, not the graph's"
    assert of([], ["b"]) == ["", "a"], "left before a submodule runs where only its input is wanted"
    assert of([], [""]) == [], "nor does the module itself, where only its input is wanted"
    assert of([], ["c", "a"]) == ["", "a", "b"]
    assert of([""]) == ["", "a", "b", "c"]
    assert of([]) == ["", "a", "b", "c"], "where nothing is wanted, it runs fully"
    assert of(["a"], early_exit=False) == ["", "a", "b", "c"]
    assert of([], ["b"], early_exit=False) == ["", "a", "b", "c"]


def test_a_container_submodule_is_left_in_the_middle() -> None:
    net, x = nn.Sequential(nn.Sequential(lin(), lin()), nn.Sequential(lin(), lin())), rows()
    ran = counting(net)
    got = ports(net, ["1.0"])({"x": x}, {})["1.0"]
    assert ran == ["", "0", "0.0", "0.1", "1", "1.0"]
    assert torch.equal(got, net[1][0](net[0](x)))


def test_each_target_is_left_for_itself() -> None:
    first, second, x = Chain(), Chain(), rows()
    ran = [counting(first), counting(second)]
    a, b = weave.ModuleTarget("a", first), weave.ModuleTarget("b", second)
    knot(
        (EXT.input("x"), a.input("")),
        (a.output("a"), b.input("")),
        (b.output("b"), EXT.output("y")),
    )({"x": x}, {})
    assert ran == [["", "a"], ["", "a", "b"]]


def test_a_submodule_called_twice_cant_end_the_forward_with_another_capture_missing() -> None:
    net = Does(lambda m, x: m.other(m.layer(m.layer(m.layer(x)))), layer=lin(), other=lin())
    x = rows()
    for names in (["layer", "other"], ["other", "layer"]):
        got = ports(net, names)({"x": x}, {}).captured_outputs
        assert torch.equal(got["layer"], net.layer(x))
        assert torch.equal(got["other"], net(x))


def test_last_and_all_need_the_whole_forward() -> None:
    net, x = Again(3), rows()
    ran, m = counting(net), weave.ModuleTarget("m", net)
    for call in ("last", "all"):
        ran.clear()
        knot((EXT.input("x"), m.input("")), (m.output("layer", call=call), EXT.output("y")))({"x": x}, {})
        assert len(ran) == 4
    ran.clear()
    knot((EXT.input("x"), m.input("")), (m.output("layer", call=1), EXT.output("y")))({"x": x}, {})
    assert len(ran) == 3


def test_an_overridden_output_that_is_captured_is_left_at_once() -> None:
    net, x, v = Chain(), rows(), torch.ones(2, 3)
    ran = counting(net)
    assert ports(net, ["b"], new_outputs=["b"])({"x": x}, {"b": v})["b"] is v
    assert ran == ["", "a"]
    ran.clear()
    m = weave.ModuleTarget("m", net)
    feed = (EXT.input("x"), m.input(""))
    got = knot(feed, (EXT.output("v"), m.output("b", reducer=ADDS)), (m.output("b"), EXT.output("b")))(
        {"x": x}, {"v": v}
    )
    assert torch.equal(got["b"], net.steps(x)["b"] + v)
    assert ran == ["", "a", "b"]


def swallows_exceptions(m: Any, x: torch.Tensor) -> torch.Tensor:
    try:
        x = m.a(x)
    except Exception:
        m.swallowed = True
    return m.b(x)


def swallows_everything(m: Any, x: torch.Tensor) -> torch.Tensor:
    try:
        x = m.a(x)
    except BaseException:
        m.swallowed = True
    return m.b(x)


def swallows_bare(m: Any, x: torch.Tensor) -> torch.Tensor:
    try:
        x = m.a(x)
    except:  # noqa: E722 - the point
        m.swallowed = True
    return m.b(x)


def swallows_by_returning(m: Any, x: torch.Tensor) -> torch.Tensor:
    try:
        x = m.a(x)
    finally:
        return m.b(x)  # noqa: B012 - the point


def swallows_by_a_context(m: Any, x: torch.Tensor) -> torch.Tensor:
    with contextlib.suppress(BaseException):
        x = m.a(x)
    return m.b(x)


def swallows_in_a_loop(m: Any, x: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        try:
            x = m.a(x)
            break
        except BaseException:
            continue
    return m.b(x)


def raises_another(m: Any, x: torch.Tensor) -> torch.Tensor:
    try:
        x = m.a(x)
    except BaseException as error:
        raise RuntimeError("the model's own error") from error
    return m.b(x)


SWALLOWERS = [swallows_everything, swallows_bare, swallows_by_returning, swallows_by_a_context, swallows_in_a_loop]


def test_except_exception_cant_swallow_the_signal() -> None:
    net, x = Does(swallows_exceptions, a=lin(), b=lin()), rows()
    ran = counting(net)
    assert torch.equal(ports(net, ["a"])({"x": x}, {})["a"], net.a(x))
    assert ran[:2] == ["", "a"]
    assert "b" not in ran
    assert not hasattr(net, "swallowed")


@pytest.mark.parametrize("body", SWALLOWERS)
@pytest.mark.parametrize("port", ["output", "input"])
def test_code_that_swallows_everything_gets_right_results(body: Callable[..., Any], port: str) -> None:
    net, x = Does(body, a=lin(), b=lin()), rows()
    stitched = ports(net, ["a"] if port == "output" else [], ["a"] if port == "input" else [])
    for _ in range(2):
        got = stitched({"x": x}, {})
        if port == "output":
            assert torch.equal(got["a"], net.a(x))
        else:
            assert got["a"].args[0] is x
        assert touched(net) == []


@pytest.mark.parametrize("ended_by", ["return", "finally"])
def test_an_override_behind_a_swallowed_exit_is_no_error(ended_by: str) -> None:
    """All that was wanted had been captured; what the model makes of the signal does not put an override in vain."""

    def returns(m: Any, x: torch.Tensor) -> torch.Tensor:
        try:
            x = m.a(x)
        except BaseException:
            return x
        return m.b(x)

    def finally_returns(m: Any, x: torch.Tensor) -> torch.Tensor:
        try:
            x = m.b(m.a(x))
        finally:
            return x  # noqa: B012 - the point

    net, x = Does(returns if ended_by == "return" else finally_returns, a=lin(), b=lin()), rows()
    assert torch.equal(ports(net, ["a"], new_outputs=["b"])({"x": x}, {"b": x})["a"], net.a(x))
    assert torch.equal(ports(net, ["a"], new_inputs=["b"])({"x": x, "b": x}, {})["a"], net.a(x))


def test_the_models_own_error_in_answer_to_the_signal_is_the_nodes() -> None:
    with pytest.raises(RuntimeError, match="the model's own error"):
        ports(Does(raises_another, a=lin(), b=lin()), ["a"])({"x": rows()}, {})


def test_context_managers_of_the_model_are_left_properly() -> None:
    order: list[str] = []

    @contextlib.contextmanager
    def noted() -> Any:
        order.append("in")
        try:
            yield
        finally:
            order.append("out")

    def body(m: Any, x: torch.Tensor) -> torch.Tensor:
        with noted(), torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            return m.b(m.a(x))

    net, x = Does(body, a=lin(), b=lin()), rows()
    got = ports(net, ["a"])({"x": x}, {})["a"]
    assert order == ["in", "out"]
    assert got.dtype == torch.bfloat16
    assert torch.is_grad_enabled()
    assert not torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("around", [True, False])
@pytest.mark.parametrize("inside", [True, False])
def test_a_grad_mode_toggled_by_hand_is_put_back(around: bool, inside: bool) -> None:
    def body(m: Any, x: torch.Tensor) -> torch.Tensor:
        before = torch.is_grad_enabled()
        torch.set_grad_enabled(inside)
        y = m.b(m.a(x))
        torch.set_grad_enabled(before)
        return y

    net, x = Does(body, a=lin(), b=lin()), rows()
    with torch.set_grad_enabled(around):
        got = ports(net, ["a"])({"x": x}, {})["a"]
        assert torch.is_grad_enabled() is around
    assert got.requires_grad is inside


def test_a_grad_mode_toggled_by_hand_is_put_back_for_the_next_node() -> None:
    def body(m: Any, x: torch.Tensor) -> torch.Tensor:
        torch.set_grad_enabled(False)
        return m.b(m.a(x))

    net, x = Does(body, a=lin(), b=lin()), rows()
    m, f = weave.ModuleTarget("m", net), weave.FunctionTarget("f", lambda v: torch.is_grad_enabled())
    for port in (m.output("a"), m.output("")):
        assert (
            knot((EXT.input("x"), m.input("")), (port, f.input()), (f.output(), EXT.output("y")))({"x": x}, {})["y"]
            is True
        )
        assert torch.is_grad_enabled()


def test_a_grad_mode_toggled_by_hand_is_put_back_where_the_forward_raised() -> None:
    def body(m: Any, x: torch.Tensor) -> torch.Tensor:
        torch.set_grad_enabled(False)
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        ports(Does(body, a=lin()), ["a"])({"x": rows()}, {})
    assert torch.is_grad_enabled()


def test_autocast_inside_and_around() -> None:
    def body(m: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return m.b(m.a(x))

    net, x = Does(body, a=lin(), b=lin()), rows()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = nn.functional.linear(x, net.a.weight, net.a.bias)
    assert torch.equal(ports(net, ["a"])({"x": x}, {})["a"], a)
    assert not torch.is_autocast_enabled("cpu")
    plain, f = Chain(), weave.FunctionTarget("f", lambda v: torch.is_autocast_enabled("cpu"))
    m = weave.ModuleTarget("m", plain)
    stitched = knot(
        (EXT.input("x"), m.input("")),
        (m.output("a"), EXT.output("a")),
        (m.output("a"), f.input()),
        (f.output(), EXT.output("f")),
    )
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        got = stitched({"x": x}, {})
    assert (got["a"].dtype, got["a"].requires_grad, got["f"]) == (torch.bfloat16, False, True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = stitched({"x": x}, {})["a"]
        assert got.requires_grad
        got.float().sum().backward()
    assert plain.a.weight.grad is not None


def test_the_random_numbers_drawn_are_those_of_what_ran() -> None:
    net, x = nn.Sequential(nn.Dropout(), lin(), nn.Dropout()), rows()
    torch.manual_seed(7)
    want = net[1](net[0](x))
    after = torch.rand(1)
    torch.manual_seed(7)
    got = ports(net, ["1"])({"x": x}, {})["1"]
    assert torch.equal(got, want)
    assert torch.equal(torch.rand(1), after)


def test_results_are_the_same_with_and_without() -> None:
    net, x, v = nn.Sequential(Chain(), Again(3), Chain()), rows(), torch.ones(2, 3)
    names = ["0.a", "1.layer", "2.b"]
    got = [
        ports(net, names, names, new_outputs=["0.b"], early_exit=early)({"x": x}, {"0.b": v}) for early in (True, False)
    ]
    for name in names:
        assert torch.equal(got[0].captured_outputs[name], got[1].captured_outputs[name])
        assert torch.equal(got[0].captured_inputs[name].args[0], got[1].captured_inputs[name].args[0])
