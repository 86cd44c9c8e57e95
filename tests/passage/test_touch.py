"""The one mechanism: a `Touch` in the `__dict__` of the modules with ports, while a run is under way and no longer."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from torch import nn

import weave
from weave.passage.touch import ATTRIBUTE, Touch, current, release, touch_all

from .nets import Chain, Does, lin, rows
from .stitching import EXT, knot, ports, touched


def during(net: nn.Module, at: nn.Module, look: Any) -> None:
    """Call `look` in the middle of every forward of `at`."""
    at.register_forward_pre_hook(lambda m, args: look())


def test_only_modules_with_ports_are_touched() -> None:
    net, seen = nn.Sequential(*(nn.Sequential(Chain(), Chain()) for _ in range(4))), []
    during(net, net[3][1].c, lambda: seen.append(touched(net)))
    ports(net, ["1.0.b", ""], ["2"], new_inputs=["3.1.a"])({"x": rows(), "3.1.a": rows()}, {})
    assert seen == [["", "1.0.b", "2", "3.1.a"]]
    assert touched(net) == []


def test_wrappers_on_the_way_are_touched_only_where_they_must_finish() -> None:
    accelerate = pytest.importorskip("accelerate.hooks")
    net, seen = nn.Sequential(nn.Sequential(Chain()), nn.Sequential(Chain())), []
    accelerate.add_hook_to_module(net[0][0], accelerate.ModelHook())
    during(net, net[0][0].c, lambda: seen.append(touched(net)))
    ports(net, ["0.0.a"])({"x": rows()}, {})
    assert seen == [["", "0.0", "0.0.a"]]


def test_another_targets_modules_are_not_touched_meanwhile() -> None:
    first, second, seen = Chain(), Chain(), []
    during(first, first.a, lambda: seen.append((touched(first), touched(second))))
    during(second, second.a, lambda: seen.append((touched(first), touched(second))))
    a, b = weave.ModuleTarget("a", first), weave.ModuleTarget("b", second)
    knot((EXT.input("x"), a.input("")), (a.output("b"), b.input("")), (b.output("c"), EXT.output("y")))(
        {"x": rows()}, {}
    )
    assert seen == [(["", "b"], []), ([], ["", "c"])]


def test_a_fake_cache_touches_what_its_predicate_names_and_no_more() -> None:
    net, seen = nn.Sequential(Chain(), Chain(), lin()), []
    during(net, net[2], lambda: seen.append(touched(net)))
    stitched = ports(net, ["2"], capture_cache_outputs_predicate=lambda name, m: name in ("0", "1"))
    stitched({"x": rows()}, {})
    assert seen == [["", "0", "1", "2"]]


def test_users_are_counted() -> None:
    net = lin()
    one, two = touch_all([net]), touch_all([net])
    assert one == two
    release(one)
    assert ATTRIBUTE in net.__dict__
    release(two)
    assert ATTRIBUTE not in net.__dict__
    twice = touch_all([net, net])
    release(twice)
    assert ATTRIBUTE not in net.__dict__


@pytest.mark.parametrize("there", ["nothing", "none", "something"])
def test_what_was_there_is_put_back(there: str) -> None:
    net, calls = lin(), []
    if there == "none":
        net.__dict__[ATTRIBUTE] = None
    elif there == "something":
        net.__dict__[ATTRIBUTE] = lambda *args: calls.append(args) or net._call_impl(*args)
    before, x = dict(net.__dict__), rows()
    touches = touch_all([net])
    assert torch.equal(net(x), nn.functional.linear(x, net.weight, net.bias))
    assert len(calls) == (there == "something")
    release(touches)
    assert net.__dict__ == before
    assert list(net.__dict__) == list(before)


def test_what_the_user_puts_there_meanwhile_stays() -> None:
    net = lin()
    touches = touch_all([net])
    mine = net.__dict__[ATTRIBUTE] = lambda *args: 7
    release(touches)
    assert net.__dict__[ATTRIBUTE] is mine
    assert net(rows()) == 7


def test_a_call_without_a_passage_is_a_plain_call() -> None:
    net, x = Chain(), rows()
    want, seen = net(x), []
    net.b.register_forward_hook(lambda m, args, out: seen.append(out))
    touches = touch_all([net, net.b])
    try:
        assert current.get() is None
        assert torch.equal(net(x), want)
        assert len(seen) == 1
        with pytest.raises(TypeError, match="forward"):
            net.b()
    finally:
        release(touches)


def test_nothing_is_written_through_the_modules_own_setattr() -> None:
    class Guarded(nn.Linear):
        def __setattr__(self, name: str, value: Any) -> None:
            assert name != ATTRIBUTE
            super().__setattr__(name, value)

        def __delattr__(self, name: str) -> None:
            raise AssertionError(name)

    release(touch_all([Guarded(1, 1)]))


class CopiesItsDict(nn.Linear):
    """A class with pickling of its own, that carries everything along."""

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__.copy()


@pytest.mark.parametrize("cls", [nn.Linear, CopiesItsDict])
def test_copies_and_pickles_hold_nothing_of_it(cls: type[nn.Linear]) -> None:
    net, x = cls(3, 3), rows()
    clean = pickle.dumps(net)
    touches = touch_all([net])
    try:
        buffer = io.BytesIO()
        torch.save(net, buffer)
        buffer.seek(0)
        copies = [
            copy.deepcopy(net),
            pickle.loads(pickle.dumps(net)),
            torch.load(buffer, weights_only=False),
        ]
        if cls is nn.Linear:
            copies.append(copy.copy(net))
            assert pickle.dumps(net) == clean
        assert isinstance(net.__dict__[ATTRIBUTE], Touch)
    finally:
        release(touches)
    for twin in copies:
        assert twin.__dict__.get(ATTRIBUTE) is None
        assert torch.equal(twin(x), net(x))
    with torch.no_grad():
        net.weight.zero_()
    assert not torch.equal(copies[0](x), net(x)), "a deep copy calls its own weights"


def test_exceptions_as_they_are_and_nothing_left_behind() -> None:
    class Odd(Exception):
        def __init__(self, a: int, *, b: int) -> None:
            super().__init__()

        def __str__(self) -> str:
            raise RuntimeError("no text")

    net, x = Does(lambda m, x: m.b(m.a(x)), a=lin(), b=lin()), rows()
    stitched = ports(net, ["b"], ["a"])
    for error in (
        ValueError("v"),
        KeyboardInterrupt(),
        SystemExit(3),
        GeneratorExit(),
        StopIteration("s"),
        MemoryError(),
        Odd(1, b=2),
    ):
        before = dict(net.__dict__), dict(net.a.__dict__)

        def fail(m: nn.Module, args: Any, error: BaseException = error) -> None:
            raise error

        handle = net.b.register_forward_pre_hook(fail)
        with pytest.raises(type(error)) as raised:
            stitched({"x": x}, {})
        handle.remove()
        assert raised.value is error
        assert touched(net) == []
        assert current.get() is None
        assert (dict(net.__dict__), dict(net.a.__dict__)) == before
    assert torch.equal(stitched({"x": x}, {})["b"], net(x))
