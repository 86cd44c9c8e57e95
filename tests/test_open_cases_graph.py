"""Cases from public reports, continued: errors, the graph, copies, loops and processes (see `test_open_cases`)."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import os
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.counted import calls_of
from tests.small import EXT, Tiny, constant, flow, knot, module, packed, plus_one, sewn
from weave import (
    FunctionTarget,
    InputArgs,
    ModuleTarget,
    Needle,
    OutputReducer,
    StitchedModuleException,
)

x23 = torch.arange(6.0).reshape(2, 3) / 5 - 0.4


# --- errors ---


class Odd(Exception):
    def __init__(self, a: int, *, b: int) -> None:
        super().__init__()

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    "error",
    [
        KeyboardInterrupt(),
        SystemExit(3),
        StopIteration("end"),
        GeneratorExit(),
        Odd(1, b=2),
        StopAsyncIteration(),
        MemoryError(),
    ],
    ids=lambda e: type(e).__name__,
)
def test_exceptions_as_they_are(error: BaseException) -> None:
    """From functions, adapters and reducers; and the next run is as new."""
    fail = [True]

    def sometimes(value: Any, *more: Any) -> Any:
        if fail[0]:
            raise error
        return value if more == () else more[0]

    f = FunctionTarget("f", plus_one)
    for end in ((f.output(adapter=sometimes), EXT.output("y")), (f.output(), EXT.output("y", reducer=sometimes))):
        stitched = knot((EXT.input("x"), f.input()), end)
        fail[0] = True
        with pytest.raises(type(error)) as raised:
            stitched({"x": 1}, {})
        assert raised.value is error
        fail[0] = False
        assert stitched({"x": 1}, {})["y"] == 2


def test_stop_iteration_in_a_thread() -> None:
    """A synchronous call raises what the node raised, whatever it is; in a generator of the caller's too."""
    with pytest.raises(StopIteration):
        flow(lambda x: next(iter([])))({"x": 1}, {})

    def work() -> Any:
        try:
            flow(lambda x: next(iter([])))({"x": 1}, {})
        except StopIteration:
            return "found"

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        assert pool.submit(work).result() == "found"


def test_node_that_raises_cancelled() -> None:
    """With nobody cancelling; nobody is left cancelled either."""

    def bad(x: Any) -> Any:
        raise asyncio.CancelledError("mine")

    async def main() -> Any:
        with pytest.raises(asyncio.CancelledError, match="mine"):
            flow(bad)({"x": 1}, {})
        task = asyncio.current_task()
        assert task is not None
        await asyncio.sleep(0)
        return task.cancelling()

    assert asyncio.run(main()) == 0


# --- the graph ---


def test_function_that_returns_arguments() -> None:
    """Several results of one stage as arguments and keywords of the next; the caller's own InputArgs stays as it was."""
    f, g = FunctionTarget("f", lambda x: InputArgs(x, 2, k=3)), FunctionTarget("g", packed)

    class Scale(nn.Module):
        def forward(self, x: Any, by: Any, k: Any = 0) -> Any:
            return x * by + k

    m = module(Scale())
    stitched = knot(
        (EXT.input("x"), f.input()),
        (f.output(), g.input()),
        (constant(9), g.input()),
        (f.output(), m.input("")),
        (g.output(), EXT.output("g")),
        (m.output(""), EXT.output("m")),
    )
    out = stitched({"x": 5}, {})
    assert (out["g"], out["m"]) == (((5, 2, 9), {"k": 3}), 13)
    mine = InputArgs(1, 2, k=3)
    h = FunctionTarget("h", packed)
    twice = knot((EXT.input("x"), h.input()), (EXT.input("y"), h.input()), (h.output(), EXT.output("h")))
    for _ in range(3):
        assert twice({"x": mine, "y": InputArgs(7)}, {})["h"] == ((1, 2, 7), {"k": 3})
    assert (mine.args, mine.kwargs) == ([1, 2], {"k": 3})


def test_external_names_in_four_roles() -> None:
    f, g = FunctionTarget("x", lambda v: v + 1), FunctionTarget("g", lambda v: v * 10)
    out = knot(
        (EXT.input("x"), f.input()),
        (EXT.output("x"), g.input()),
        (f.output(), EXT.input("x")),
        (g.output(), EXT.output("x")),
    )({"x": 1}, {"x": 5})
    assert (out.captured_inputs["x"].args, out.captured_outputs["x"]) == ([2], 50)
    out = knot(
        (EXT.input("a"), EXT.input("b")),
        (EXT.output("a"), EXT.output("b")),
        (EXT.input("a"), f.input()),
        (f.output(), EXT.output("a")),
    )({"a": 3}, {"a": "kept"})
    assert out.captured_inputs["b"].args == [3]
    assert out.captured_outputs == {"b": "kept", "a": 4}


def test_targets_without_stitches() -> None:
    """Nobody reads from them, or nobody stitched them: they run, and take nothing from the caller."""
    ran: list[str] = []
    sink = FunctionTarget("sink", lambda v: ran.append("sink"))
    lone = FunctionTarget("lone", lambda: ran.append("lone"))
    needle = Needle().stitch(EXT.input("x"), sink.input())
    needle.get_node_for_target(lone)
    out = needle.knot()({"x": 4}, {})
    assert sorted(ran) == ["lone", "sink"]
    assert not out.captured_outputs
    assert not out.captured_inputs


def fan_in(width: int) -> tuple[Needle, Callable[[Any], None]]:
    """So many stitches on a function, on a boundary input and on a boundary output."""
    f = FunctionTarget("sum", lambda *a: a)
    add = OutputReducer(lambda acc, v, original, i, every: (acc or 0) + v * i)
    sources = [constant(i) for i in range(width)]
    needle = sewn(*[(c, end) for c in sources for end in (f.input(), EXT.input("i"), EXT.output("z", reducer=add))])
    needle.stitch(f.output(), EXT.output("y"))

    def check(out: Any) -> None:
        assert out["y"] == tuple(range(width))
        assert out.captured_inputs["i"].args == list(range(width))
        assert out.captured_outputs["z"] == sum(i * i for i in range(width))

    return needle, check


def test_large_fan_in_takes_calls_in_proportion() -> None:
    narrow, wide = fan_in(300)[0], fan_in(1200)[0]
    assert calls_of(wide.knot) < 4.2 * calls_of(narrow.knot)
    one, other = narrow.knot(), wide.knot()
    assert calls_of(lambda: other({}, {})) < 4.2 * calls_of(lambda: one({}, {}))
    needle, check = fan_in(3000)
    check(needle.knot()({}, {}))


def test_large_fan_in_copies_arguments_in_proportion(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adding argument after argument to a growing list copies n * n / 2 of them."""
    copied = 0
    of = InputArgs.of.__func__  # type: ignore[attr-defined]

    def counting(cls: Any, args: Any, kwargs: Any) -> Any:
        nonlocal copied
        made = of(cls, args, kwargs)
        copied += len(made.args)
        return made

    needle, check = fan_in(1000)
    stitched = needle.knot()
    monkeypatch.setattr(InputArgs, "of", classmethod(counting))
    check(stitched({}, {}))
    assert copied < 20 * 1000


# --- being an nn.Module among others; inside one another; loops, threads, processes ---


def test_pickled_to_a_spawned_process() -> None:
    """What goes there is a pickle that holds no lock and no local function (the process itself: `test_copies`)."""
    f = FunctionTarget("f", plus_one)
    m = module(Tiny())
    stitched = knot((EXT.input("x"), m.input("")), (m.output("a"), f.input()), (f.output(), EXT.output("y")))
    want = stitched({"x": x23}, {})["y"]
    blob = pickle.dumps(stitched)
    assert torch.equal(pickle.loads(blob)({"x": x23}, {})["y"], want)


def test_a_graph_as_a_target() -> None:
    net = Tiny()
    m = ModuleTarget("m", net)
    inner = knot((EXT.input("x"), m.input("")), (m.output("a"), EXT.output("a")), (m.output(""), EXT.output("y")))
    once, again = FunctionTarget("once", inner), FunctionTarget("again", inner)
    ask: Any = {"adapter": lambda value: InputArgs({"x": value}, {})}
    stitched = knot(
        (EXT.output("x"), once.input(**ask)),
        (once.output(adapter=lambda out: out["y"]), again.input(**ask)),
        (again.output(adapter=lambda out: out["a"]), EXT.output("y")),
    )
    assert torch.equal(stitched({}, {"x": x23})["y"], net.a(net(x23)))
    assert list(stitched.state_dict()) == ["once.m.a.weight", "once.m.a.bias", "once.m.b.weight", "once.m.b.bias"]


who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


def test_contextvars_of_nodes() -> None:
    """In a synchronous call a node sets the caller's, as any function call does; tokens can be reset, also by a later node."""
    tokens: list[contextvars.Token[str]] = []

    def main() -> list[str]:
        who.set("caller")
        seen: list[str] = []
        stitched = flow(
            lambda v: (tokens.append(who.set("node")), v)[1],
            lambda v: (seen.append(who.get()), v)[1],
            lambda v: (who.reset(tokens.pop()), v)[1],
        )
        stitched({"x": 1}, {})
        return [*seen, who.get()]

    assert contextvars.copy_context().run(main) == ["node", "caller"]
    assert who.get() == "nobody"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_fork_after_use() -> None:
    """With a passage used before, and a run under way in the very moment of the fork."""
    net = nn.Sequential(nn.Identity())
    m = module(net)
    status: list[int] = []

    def forks(x: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            child = os.fork()
        if child == 0:
            code = 3
            try:
                code = 0 if plain({"x": 7}, {})["y"] == 7 else 2
            finally:
                os._exit(code)
        status.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        return x

    plain = knot((EXT.input("x"), m.input("")), (m.output("0"), EXT.output("y")))
    assert plain({"x": 1}, {})["y"] == 1
    f = FunctionTarget("forks", forks)
    assert knot((EXT.input("x"), f.input()), (f.output(), EXT.output("y")))({"x": 5}, {})["y"] == 5
    assert status == [0]


def test_what_a_plain_function_gives_to_await_is_for_asynchronous_runs() -> None:
    """The part of the asynchronous cases that a synchronous call can get wrong: it says so, and nothing hangs."""

    async def waits(x: Any) -> Any:
        await asyncio.sleep(0)
        return x

    with pytest.raises(StitchedModuleException, match="await"):
        flow(lambda x: waits(x))({"x": 1}, {})
