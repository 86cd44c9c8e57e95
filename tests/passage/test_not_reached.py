"""A port that a forward did not pass raises, naming the port and the likely causes."""

from __future__ import annotations

import concurrent.futures
import contextvars
from typing import Any

import pytest
import torch
from torch import nn

import weave

from .nets import Chain, Does, counting, lin, rows
from .stitching import EXT, knot, ports, touched

NotReached = weave.PortNotReachedException


def branches(m: Any, x: torch.Tensor) -> torch.Tensor:
    return m.a(x) if x.shape[0] == 1 else m.b(x)


@pytest.fixture
def branching() -> nn.Module:
    return Does(branches, a=lin(), b=lin())


def test_a_capture_that_was_not_called_for_this_input(branching: nn.Module) -> None:
    for stitched in (ports(branching, ["a"]), ports(branching, [], ["a"]), ports(branching, ["a", "b", ""])):
        with pytest.raises(
            NotReached, match=r"m\.(in|out)put\('a'\) \(captured\): it was not called.*another branch"
        ) as raised:
            stitched({"x": rows(2)}, {})
        assert raised.value.node == "m"
        assert len(raised.value.ports) == 1
        assert touched(branching) == []
    assert torch.equal(ports(branching, ["a"])({"x": rows(1)}, {})["a"], branching.a(rows(1))), "the next run is right"


@pytest.mark.parametrize("early_exit", [True, False])
@pytest.mark.parametrize("kind", ["output", "input"])
def test_an_override_in_vain(branching: nn.Module, kind: str, early_exit: bool) -> None:
    """The module's own output is the last thing that a forward gives: captured, it ran to its end."""
    stitched = ports(branching, [""], **{f"new_{kind}s": ["a"]}, early_exit=early_exit)
    external = ({"x": rows(2), "a": rows(2)}, {}) if kind == "input" else ({"x": rows(2)}, {"a": rows(2)})
    with pytest.raises(NotReached, match=rf"m\.{kind}\('a'\) \(overridden, in vain\)"):
        stitched(*external)


def test_an_override_in_vain_where_nothing_is_wanted(branching: nn.Module) -> None:
    with pytest.raises(NotReached, match="in vain"):
        ports(branching, new_outputs=["a"])({"x": rows(2)}, {"a": rows(2)})


def test_an_override_in_vain_with_a_capture_that_is_held(branching: nn.Module) -> None:
    m = weave.ModuleTarget("m", branching)
    stitched = knot(
        (EXT.input("x"), m.input("")), (EXT.output("v"), m.output("a")), (m.output("b", call="last"), EXT.output("b"))
    )
    with pytest.raises(NotReached, match="in vain"):
        stitched({"x": rows(2)}, {"v": rows(2)})


def test_all_that_was_missed_is_named_at_once(branching: nn.Module) -> None:
    m = weave.ModuleTarget("net", branching)
    stitched = knot(
        (EXT.input("x"), m.input("")),
        (EXT.input("v"), m.input("a")),
        (m.output("a"), EXT.output("a")),
        (m.output("b", call=3), EXT.output("b")),
    )
    with pytest.raises(NotReached) as raised:
        stitched({"x": rows(2), "v": rows(2)}, {})
    assert sorted(raised.value.ports) == ["net.input('a')", "net.output('a')", "net.output('b', call=3)"]
    for said in (
        *raised.value.ports,
        "(captured)",
        "(overridden, in vain)",
        "called 1 time(s)",
        "the forward of 'net'",
    ):
        assert said in str(raised.value)
    assert isinstance(raised.value, RuntimeError)


def test_behind_the_last_capture_of_an_early_exit_is_no_error() -> None:
    net, x, v = Chain(), rows(), torch.ones(2, 3)
    ran = counting(net)
    got = ports(net, ["a"], new_outputs=["c"], new_inputs=["b"])({"x": x, "b": v}, {"c": v})["a"]
    assert torch.equal(got, net.steps(x)["a"])
    assert ran[:2] == ["", "a"]
    assert "b" not in ran


def test_inside_a_submodule_whose_output_is_overridden_by_another_name() -> None:
    """Not seen at the knot: the block is skipped for one call only, and it was the only call."""
    net, x, v = nn.Sequential(Chain(), lin()), rows(), torch.ones(2, 3)
    m = weave.ModuleTarget("m", net)
    stitched = knot(
        (EXT.input("x"), m.input("")), (EXT.output("v"), m.output("0", call=0)), (m.output("0.b"), EXT.output("b"))
    )
    with pytest.raises(NotReached, match=r"'0\.b'.*inside a submodule whose output is overridden"):
        stitched({"x": x}, {"v": v})


def test_the_fused_fast_path_of_a_transformer_layer() -> None:
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval()
    net = nn.Sequential(layer)
    x = torch.randn(2, 3, 4)
    for stitched, external in (
        (ports(net, ["0.linear1"]), ({"x": x}, {})),
        (ports(net, [], ["0.self_attn"]), ({"x": x}, {})),
        (ports(net, [""], new_outputs=["0.linear2"]), ({"x": x}, {"0.linear2": x})),
    ):
        with torch.no_grad(), pytest.raises(NotReached, match=r"'0\..*fast path.*set_fastpath_enabled\(False\)"):
            stitched(*external)
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad():
            got = ports(net, ["0.linear1", ""])({"x": x}, {}).captured_outputs
            assert got["0.linear1"].shape == (2, 3, 8)
            assert torch.equal(got[""], layer(x))
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
    got = ports(net.train(), ["0.linear1"])({"x": x}, {})["0.linear1"]
    assert got.shape == (2, 3, 8), "training takes the slow path"


def test_the_fast_path_of_a_whole_encoder() -> None:
    net = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 2, enable_nested_tensor=False
    ).eval()
    x = torch.randn(2, 3, 4)
    with torch.no_grad():
        assert torch.equal(ports(net, ["layers.0", ""])({"x": x}, {})[""], net(x))
        with pytest.raises(NotReached, match="fast path"):
            ports(net, ["layers.1.norm1"])({"x": x}, {})


def test_a_direct_call_of_forward() -> None:
    net = Does(lambda m, x: m.a.forward(x), a=lin())
    with pytest.raises(NotReached, match=r"m\.output\('a'\).*\.forward\(\) is called directly"):
        ports(net, ["a"])({"x": rows()}, {})


def test_weights_that_are_used_without_a_call() -> None:
    net = Does(lambda m, x: nn.functional.linear(x, m.a.weight), a=lin())
    with pytest.raises(NotReached, match="not called for this input"):
        ports(net, ["a"])({"x": rows()}, {})


@pytest.mark.parametrize("port", ["b", "b.deep"])
def test_replaced_after_the_knot(port: str) -> None:
    net = Does(lambda m, x: m.b(x), b=nn.Sequential())
    net.b.add_module("deep", lin())
    stitched = ports(net, [port])
    net.b = nn.Sequential()
    net.b.add_module("deep", nn.Tanh())
    with pytest.raises(
        NotReached, match=rf"'{port}' was replaced after the knot \(by a {'Sequential' if port == 'b' else 'Tanh'}\)"
    ):
        stitched({"x": rows()}, {})


def test_removed_or_wrapped_after_the_knot() -> None:
    net = Does(lambda m, x: m.b(x), b=nn.Sequential(lin()))
    stitched = ports(net, ["b.0"])
    net.b[0] = nn.Sequential(net.b[0])
    assert torch.equal(stitched({"x": rows()}, {})["b.0"], net(rows())), "still called, wherever it is"
    net.b = nn.Sequential(nn.Identity())
    with pytest.raises(NotReached, match=r"'b\.0' was replaced"):
        stitched({"x": rows()}, {})
    net.b = nn.Sequential()
    with pytest.raises(NotReached, match=r"'b\.0' is no longer there"):
        stitched({"x": rows()}, {})


def test_a_submodule_put_back_is_reached_again() -> None:
    net, x = Chain(), rows()
    stitched, old = ports(net, ["b"]), net.b
    net.b = lin()
    with pytest.raises(NotReached):
        stitched({"x": x}, {})
    net.b = old
    assert torch.equal(stitched({"x": x}, {})["b"], net.steps(x)["b"])


def threaded(m: Any, x: torch.Tensor) -> torch.Tensor:
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return sum(pool.map(lambda part: part(x), (m.a, m.b)))


def threaded_in_context(m: Any, x: torch.Tensor) -> torch.Tensor:
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(contextvars.copy_context().run, part, x) for part in (m.a, m.b)]
        return sum(job.result() for job in jobs)


def test_threads_inside_forward_are_named_as_a_cause() -> None:
    net, x = Does(threaded, a=lin(), b=lin()), rows()
    for make in (
        lambda: ports(net, ["a"])({"x": x}, {}),
        lambda: ports(net, [""], new_outputs=["b"])({"x": x}, {"b": x}),
    ):
        with pytest.raises(NotReached, match="in a thread"):
            make()
    assert torch.equal(ports(net, [""])({"x": x}, {})[""], net.a(x) + net.b(x))


def test_threads_inside_forward_that_carry_the_context_are_seen() -> None:
    net, x, v = Does(threaded_in_context, a=lin(), b=lin()), rows(), torch.ones(2, 3)
    got = ports(net, ["a", "b", ""])({"x": x}, {}).captured_outputs
    assert torch.equal(got["a"], net.a(x))
    assert torch.equal(got["b"], net.b(x))
    assert torch.equal(ports(net, [""], new_outputs=["a"])({"x": x}, {"a": v})[""], v + net.b(x))
    assert torch.equal(ports(net, ["a"])({"x": x}, {})["a"], net.a(x)), "left early from a thread of the forward's own"
    assert touched(net) == []
