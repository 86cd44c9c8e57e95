"""Targets and the ports that they give."""

from __future__ import annotations

import copy
import pickle
import threading
from typing import Any

import pytest
from torch import nn

import weave
from weave import (
    ConstantTarget,
    ExternalTarget,
    FunctionTarget,
    InputDescriptor,
    InputReducer,
    ModuleTarget,
    Needle,
    OutputDescriptor,
    OutputReducer,
    RemoteTarget,
    Singleton,
)
from weave.graph.descriptors import target_text
from weave.graph.plan import node_ids

# --- the external boundary ---


def test_the_external_boundary_is_one_object() -> None:
    ext = ExternalTarget()
    assert ExternalTarget() is ext
    assert copy.copy(ext) is ext
    assert copy.deepcopy(ext) is ext
    assert copy.deepcopy([ext, ext])[0] is ext
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(ext, protocol)) is ext


class Boundary(ExternalTarget):
    pass


def test_a_subclass_has_an_object_of_its_own() -> None:
    assert Boundary() is Boundary()
    assert Boundary() is not ExternalTarget()
    assert copy.deepcopy(Boundary()) is Boundary()
    assert pickle.loads(pickle.dumps(Boundary())) is Boundary()


def test_a_singleton_is_one_also_where_threads_ask_for_it_first() -> None:
    class Slow(metaclass=Singleton):
        def __init__(self) -> None:
            everybody.wait()  # all threads are inside the constructor at once

    count = 8
    everybody = threading.Barrier(count)
    got: list[Any] = []
    threads = [threading.Thread(target=lambda: got.append(Slow())) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == count
    assert all(one is Slow() for one in got)


# --- identity ---


def test_targets_are_the_same_only_where_they_are_one_object() -> None:
    one, other = FunctionTarget("f", abs), FunctionTarget("f", abs)
    assert one != other
    assert len({one, other}) == 2
    needle = Needle()
    assert needle.get_node_for_target(one) is not needle.get_node_for_target(other)
    assert needle.get_node_for_target(one) is needle.get_node_for_target(one)


@pytest.mark.parametrize(
    "target",
    [
        FunctionTarget("f", abs),
        ConstantTarget("c", [1]),
        ModuleTarget("m", nn.Identity()),
        RemoteTarget([1, 2]),
        ExternalTarget(),
    ],
    ids=lambda t: type(t).__name__,
)
def test_targets_hash_whatever_they_hold(target: Any) -> None:
    assert {target: 1}[target] == 1


# --- ports ---


def test_ports_carry_what_they_were_given() -> None:
    m, f, ext, remote = ModuleTarget("m", nn.Identity()), FunctionTarget("f", abs), ExternalTarget(), RemoteTarget(3)
    inputs, outputs = InputReducer(max), OutputReducer(min, requires_original_output=True)
    for port in (m.input("a.b", abs, inputs), ext.input("a.b", abs, inputs), f.input(abs, inputs)):
        assert type(port) is InputDescriptor
        assert port.input_name == ("" if port.target is f else "a.b")
        assert port.input_adapter is abs
        assert port.reducer is inputs
        assert port.call is None
    constant = ConstantTarget("c", 1)
    for port in (
        m.output("a.b", abs, outputs),
        ext.output("a.b", abs, outputs),
        remote.value("a.b", abs, outputs),
        f.output(abs, outputs),
        constant.output(abs, outputs),
    ):
        assert type(port) is OutputDescriptor
        assert port.output_name == ("" if port.target in (f, constant) else "a.b")
        assert port.output_adapter is abs
        assert port.reducer is outputs
    assert m.input("a", call=2).call == 2
    assert m.output("a", call="all").call == "all"


def test_targets_offer_the_ports_that_they_have() -> None:
    assert not hasattr(ConstantTarget("c", 1), "input")
    assert not hasattr(RemoteTarget(1), "input")
    assert not hasattr(RemoteTarget(1), "output")


def test_a_bare_function_is_wrapped_as_a_reducer() -> None:
    f = FunctionTarget("f", abs)

    class Module(nn.Module):
        pass

    for function in (max, lambda *a: a[0], Module()):
        made = f.input(reducer=function).reducer
        assert type(made) is InputReducer
        assert made.reducer_fn is function
        made = f.output(reducer=function).reducer
        assert type(made) is OutputReducer
        assert made.reducer_fn is function
        assert made.requires_original_output is False
    assert f.input(reducer="sum").reducer == "sum"


@pytest.mark.parametrize("reducer", [None, 3, OutputReducer()])
def test_what_is_no_reducer_of_an_input(reducer: Any) -> None:
    with pytest.raises(TypeError, match="InputReducer, a function or a registered name"):
        FunctionTarget("f", abs).input(reducer=reducer)


@pytest.mark.parametrize("reducer", [None, 3, InputReducer()])
def test_what_is_no_reducer_of_an_output(reducer: Any) -> None:
    with pytest.raises(TypeError, match="OutputReducer, a function or a registered name"):
        FunctionTarget("f", abs).output(reducer=reducer)


def test_subclasses_of_reducers_stay_what_they_are() -> None:
    class Mine(InputReducer):
        pass

    assert type(Mine.default()) is Mine
    assert type(FunctionTarget("f", abs).input(reducer=Mine(max)).reducer) is Mine


@pytest.mark.parametrize(
    ("port", "text"),
    [
        (lambda: ModuleTarget("m", nn.Identity()).input("layers.3", call=2), "m.input('layers.3', call=2)"),
        (lambda: ModuleTarget("m", nn.Identity()).output(""), "m.output('')"),
        (lambda: ModuleTarget("m", nn.Identity()).output("a", call="last"), "m.output('a', call='last')"),
        (lambda: FunctionTarget("f", abs).input(), "f.input()"),
        (lambda: ConstantTarget("c", 1).output(), "c.output()"),
        (lambda: ExternalTarget().input("x"), "external.input('x')"),
        (lambda: RemoteTarget(3).value("k"), "remote[3].output('k')"),
        (lambda: RemoteTarget([3, 4]).value("k"), "remote[3,4].output('k')"),
    ],
)
def test_a_port_prints_as_people_write_it(port: Any, text: str) -> None:
    assert repr(port()) == text


def test_a_stitch_prints_as_its_two_ports() -> None:
    f, g = FunctionTarget("f", abs), FunctionTarget("g", abs)
    assert repr(weave.StitchDescriptor(f.output(), g.input())) == "f.output() -> g.input()"


# --- remote targets ---


def test_one_peer_or_several() -> None:
    assert RemoteTarget(2).peers == (2,)
    assert RemoteTarget([2, 0]).peers == (2, 0)
    remote = RemoteTarget(2, None, False)
    assert (remote.peer_rank, remote.process_group, remote.blocking) == (2, None, False)


# --- node ids ---


@pytest.mark.parametrize(
    ("names", "ids"),
    [
        (["f", "g"], ["f", "g"]),
        (["f", "f", "f"], ["f", "f#2", "f#3"]),
        (["f#2", "f", "f"], ["f#2", "f", "f#3"]),
        (["f", "f", "f#2"], ["f", "f#2", "f#2#2"]),
        (["", ""], ["", "#2"]),
    ],
)
def test_node_ids(names: list[str], ids: list[str]) -> None:
    targets = [FunctionTarget(name, abs) for name in names]
    assert list(node_ids(targets).values()) == ids


def test_nodes_without_a_name_are_called_by_what_they_are() -> None:
    assert [target_text(t) for t in (ExternalTarget(), RemoteTarget(1))] == ["external", "remote[1]"]
