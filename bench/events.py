"""Section *events*: what it costs a run, in line, that it is recorded or logged. What listeners then do is off its path.

Figures are the difference to the same graph unobserved, within a round. The scribe, who turns recordings into lines in a
thread of its own, is kept still meanwhile: the clock is the process's, and counts all threads.
"""

from __future__ import annotations

import inspect
import io
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import anyio
import structlog

from bench.comparing import Comparison, Experiment
from bench.graphs import chain, doing_nothing
from bench.pairing import Contender, Pace, Timed, finish, measure
from bench.peers import weave_graphs
from bench.rows import Row, judged
from weave.observe import Listener
from weave.observe.scribe import scribe

SECTION = "events"
SIZE = 1_000
EVENTS_A_NODE = 2  # started and finished, as a program that logs each would


def experiments(pace: Pace) -> list[Experiment]:
    return [
        Experiment("events, synchronous calls", partial(_in_line, False)),
        Experiment("events, runs on asyncio", partial(_in_line, True)),
    ]


def _in_line(on_a_loop: bool, pace: Pace) -> list[Row]:
    graph = doing_nothing(chain(SIZE), waits=on_a_loop)
    call: Callable[[], Any] = weave_graphs.run(graph) if on_a_loop else weave_graphs.call(graph)
    turns = [
        Contender("nobody", _watched(call, _unobserved), on_a_loop),
        Contender("recorded", _watched(call, _recorded), on_a_loop),
        Contender("logged", _watched(call, _logged), on_a_loop),
        Contender("structlog", _one_by_one),
    ]
    flush, scribe.flush = scribe.flush, lambda: None  # type: ignore[method-assign]
    try:

        async def on_loop() -> Any:
            return await measure(turns, pace.times(0.6))

        timings = anyio.run(on_loop) if on_a_loop else finish(measure(turns, pace.times(0.6)))
    finally:
        scribe.flush = flush  # type: ignore[method-assign]
    kind = "runs on asyncio" if on_a_loop else "synchronous calls"
    in_line = Comparison(section=SECTION, what=f"{kind}, chain of {SIZE:,}: in line", each="node")
    rows = [
        in_line.row(
            f"weave, {name}",
            unit="ns",
            checked=True,
            **judged(timings.difference(name, "nobody").times(1e9 / SIZE), target),
        )
        for name, target in (("recorded", 250.0), ("logged", None))
    ]
    one_by_one = timings.seconds("structlog")
    calls = judged(one_by_one.times(1e9 / SIZE), None)
    rows.append(in_line.row(f"structlog, {EVENTS_A_NODE} calls a node", unit="ns", **calls))
    share = timings.difference("logged", "nobody").times(1 / one_by_one.median)
    title = f"{kind}, chain of {SIZE:,}: logged, over structlog's calls"
    over = Comparison(section=SECTION, what=title, each="node")
    rows.append(over.row("weave, logged", checked=True, **judged(share, 0.1)))
    return rows


def _watched(call: Callable[[], Any], way: Callable[[], Any]) -> Callable[[], Any]:
    """The run by a watch of its own, without what switches its observers on and off."""

    def here() -> Timed:
        with way():
            since = time.process_time()
            call()
            return Timed(time.process_time() - since)

    async def on_loop() -> Timed:
        with way():
            since = time.process_time()
            await call()
            return Timed(time.process_time() - since)

    return on_loop if inspect.iscoroutinefunction(call) else here


@contextmanager
def _unobserved() -> Iterator[None]:
    yield


@contextmanager
def _recorded() -> Iterator[None]:
    listener = Listener()
    scribe.listen(listener)
    try:
        yield
    finally:
        scribe.leave(listener)
        scribe._open.clear()


@contextmanager
def _logged() -> Iterator[None]:
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper("iso"),
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(io.StringIO()),
    )
    try:
        yield
    finally:
        structlog.reset_defaults()
        scribe._open.clear()


def _one_by_one() -> Timed:
    with _logged():
        logger = structlog.get_logger("bench").bind()
        since = time.process_time()
        for _ in range(SIZE * EVENTS_A_NODE):
            logger.debug("node.finished", weave_run_id="0123456789ab", weave_node="n1", duration_ms=0.001)
        return Timed(time.process_time() - since)
