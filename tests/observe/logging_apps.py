"""An application that logs by structlog, and graphs whose nodes log lines of their own."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
import structlog

from tests.observe.graphs import chain
from weave.observe import flush
from weave.stitched import StitchedModule

user = structlog.get_logger("user")


class Log:
    """A structlog that writes JSON, as services have it."""

    def __init__(self) -> None:
        self.stream = io.StringIO()

    def configure(self, level: int = logging.DEBUG, *processors: Any) -> None:
        structlog.configure(
            processors=[
                structlog.contextvars.merge_contextvars,
                structlog.processors.add_log_level,
                *processors,
                structlog.processors.JSONRenderer(),
            ],
            wrapper_class=structlog.make_filtering_bound_logger(level),
            logger_factory=structlog.PrintLoggerFactory(self.stream),
        )

    def lines(self, event: str = "") -> list[dict[str, Any]]:
        flush()
        said = [json.loads(line) for line in self.stream.getvalue().splitlines()]
        return [line for line in said if line["event"].startswith(event)]

    def counts(self) -> dict[str, int]:
        names = [line["event"] for line in self.lines()]
        return {name: names.count(name) for name in names}


def says(name: str) -> Callable[[Any], Any]:
    """A function that logs a line of the user's own."""

    def say(x: Any) -> Any:
        user.info(f"user in {name}", x=x)
        return x

    return say


def says_awaited(name: str) -> Callable[[Any], Any]:
    async def say(x: Any) -> Any:
        user.info(f"user in {name}", x=x)
        await anyio.lowlevel.checkpoint()
        user.info(f"user in {name}", x=x)
        return x

    return say


def plain() -> StitchedModule:
    return chain(("one", says("one")), ("two", says("two")))


def mixed() -> StitchedModule:
    return chain(("one", says("one")), ("two", says_awaited("two")), ("three", says("three")))


def check_bound(lines: list[dict[str, Any]], *, runs: int = 1) -> None:
    """Every line of the user's own has its node, and all of a run the run's id; a run is known by its x."""
    said = [line for line in lines if line["event"].startswith("user")]
    assert said
    ids: dict[Any, set[str]] = {}
    for line in said:
        assert line["event"] == f"user in {line['weave_node']}"
        ids.setdefault(line["x"], set()).add(line["weave_run_id"])
    assert len(ids) == runs
    assert all(len(found) == 1 for found in ids.values()), ids
    assert len(set.union(*ids.values())) == runs
    assert {line["weave_run_id"] for line in lines if line["event"] == "run.finished"} == set.union(*ids.values())
