"""The user's own log lines know their run and node: in threads, on loops, in streams, in graphs within graphs."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import anyio.to_thread
import pytest
import structlog
from structlog.contextvars import bound_contextvars, get_contextvars

from tests.observe.graphs import chain
from tests.observe.logging_apps import Log, check_bound, mixed, plain, says, says_awaited, user

pytestmark = pytest.mark.usefixtures("unconfigured")


def test_in_a_synchronous_call(log: Log) -> None:
    seen: list[dict[str, Any]] = []

    def look(x: Any) -> Any:
        seen.append(get_contextvars())
        return x

    stitched = chain(("one", says("one")), ("look", look), ("two", says("two")))
    with bound_contextvars(request_id="r"):
        stitched({"x": 1}, {})
        assert get_contextvars() == {"request_id": "r"}
    check_bound(log.lines())
    run = log.lines("run.started")[0]["weave_run_id"]
    assert seen == [{"request_id": "r", "weave_run_id": run, "weave_node": "look"}]


@pytest.mark.anyio
@pytest.mark.parametrize("make", [plain, mixed])
async def test_on_a_loop(make: Any, log: Log) -> None:
    for x in range(3):
        await make().run({"x": x}, {})
        assert get_contextvars() == {}
        assert await anyio.to_thread.run_sync(get_contextvars) == {}
    check_bound(log.lines(), runs=3)


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["asynchronous", "in threads", "mixed"])
async def test_a_hundred_runs_at_once_mix_nothing(how: str, log: Log) -> None:
    stitched = {
        "asynchronous": lambda: chain(*[(n, says_awaited(n)) for n in "ab"]),
        "in threads": plain,
        "mixed": mixed,
    }[how]()

    async def one(x: int) -> None:
        with bound_contextvars(request=x):
            await stitched.run({"x": x}, {})
            assert get_contextvars() == {"request": x}

    async with anyio.create_task_group() as group:
        for x in range(100):
            group.start_soon(one, x)
    lines = log.lines()
    check_bound(lines, runs=100)
    ids: dict[str, set[int]] = {}
    for line in lines:
        ids.setdefault(line["weave_run_id"], set()).add(line["request"])
    assert sorted(map(sorted, ids.values())) == [[x] for x in range(100)]
    assert await anyio.to_thread.run_sync(get_contextvars) == {}


@pytest.mark.parametrize("running", [False, True])
def test_through_the_synchronous_facade(running: bool, log: Log) -> None:
    """In this thread's own loop, and, where one is running, in the portal's."""
    stitched = mixed()

    async def called_on_a_loop(x: int) -> None:
        stitched({"x": x}, {})
        assert get_contextvars() == {"request": "r"}

    with bound_contextvars(request="r"):
        for x in range(3):
            if running:
                asyncio.run(called_on_a_loop(x))
            else:
                stitched({"x": x}, {})
        assert get_contextvars() == {"request": "r"}
    check_bound(log.lines(), runs=3)
    assert {line["request"] for line in log.lines()} == {"r"}


@pytest.mark.anyio
async def test_in_a_stream(log: Log) -> None:
    async with mixed().stream(({"x": x} for x in range(20)), in_flight=4) as results:
        assert [out["y"] async for out in results] == list(range(20))
        assert get_contextvars() == {}
    check_bound(log.lines(), runs=20)
    assert get_contextvars() == {}


def test_in_a_plain_stream(log: Log) -> None:
    with bound_contextvars(request="r"), mixed().stream(({"x": x} for x in range(5)), in_flight=2) as results:
        assert [out["y"] for out in results] == list(range(5))
        assert get_contextvars() == {"request": "r"}
    check_bound(log.lines(), runs=5)
    assert {line["request"] for line in log.lines()} == {"r"}


@pytest.mark.anyio
@pytest.mark.parametrize("inside", [plain, mixed])
async def test_graphs_in_graphs(inside: Any, log: Log) -> None:
    """A line inside belongs to the inner run; afterwards the node's lines belong to the outer one again."""
    inner = inside()

    def outer(x: Any) -> Any:
        user.info("user in outer", x=x)
        y = inner({"x": f"inner {x}"}, {})["y"]
        user.info("user in outer", x=x)
        return int(y.split()[1])

    async def outer_awaited(x: Any) -> Any:
        user.info("user in awaits", x=x)
        y = (await inner.run({"x": f"awaited {x}"}, {}))["y"]
        user.info("user in awaits", x=x)
        return int(y.split()[1])

    stitched = chain(("outer", outer), ("awaits", outer_awaited), ("last", says("last")))
    await stitched.run({"x": 1}, {})
    check_bound(log.lines(), runs=3)
    assert get_contextvars() == {}


@pytest.mark.anyio
async def test_in_what_a_plain_function_gave_to_await(log: Log) -> None:
    class Later:
        def __init__(self, x: Any) -> None:
            self.x = x

        def __await__(self) -> Any:
            return says_awaited("later")(self.x).__await__()

    stitched = chain(("given", lambda x: says_awaited("given")(x)), ("later", Later), ("last", says("last")))
    await stitched.run({"x": 1}, {})
    assert len(log.lines("user")) == 5
    check_bound(log.lines())
    assert get_contextvars() == {}


def test_a_node_that_clears_the_context_hurts_nobody(log: Log) -> None:
    def clear(x: Any) -> Any:
        structlog.contextvars.clear_contextvars()
        return x

    for run in (lambda g: g({"x": 1}, {}), lambda g: anyio.run(g.run, {"x": 1}, {})):
        run(chain(("clear", clear), ("two", says("two"))))
    assert [line["weave_node"] for line in log.lines("user")] == ["two", "two"]
    assert get_contextvars() == {}
