"""Runs as log lines: silent until asked, in the application's own log, and the user's lines know their run and node."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
import structlog
import torch
from structlog.contextvars import bound_contextvars, get_contextvars

from tests.observe.graphs import chain
from tests.observe.logging_apps import Log, check_bound, plain, user
from weave.observe import ContextFilter, flush

pytestmark = pytest.mark.usefixtures("unconfigured")

# --- silence ---


def run_program(tmp_path: Path, body: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "program.py"
    script.write_text(
        textwrap.dedent(
            """
            import logging, sys
            from weave import ExternalTarget, FunctionTarget, Needle
            caller, f = ExternalTarget(), FunctionTarget("f", lambda x: x + 1)
            stitched = Needle().stitch(caller.input("x"), f.input()).stitch(f.output(), caller.output("y")).knot()
            """
        )
        + textwrap.dedent(body)
    )
    return subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "WEAVE_TRACE"},
        capture_output=True,
        text=True,
        timeout=120,
    )


RUNS = """
stitched({"x": 1}, {})
import anyio
anyio.run(stitched.run, {"x": 1}, {})
try:
    stitched({"x": "no number"}, {})
except TypeError:
    pass
from weave.observe import flush
flush()
"""


@pytest.mark.parametrize("before", ["", "import structlog\nstructlog.get_logger()\n"])
def test_a_program_that_configures_nothing_prints_nothing(tmp_path: Path, before: str) -> None:
    done = run_program(tmp_path, before + RUNS)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_program_that_configures_only_the_root_logger_hears_no_debug(tmp_path: Path) -> None:
    done = run_program(tmp_path, "logging.basicConfig(level=logging.INFO)\n" + RUNS)
    assert done.stdout == ""
    said = [line.split()[0] for line in done.stderr.splitlines()]
    assert [word.split(":")[2] for word in said if word.startswith("INFO:weave:")] == [
        "run.started",
        "run.finished",
    ] * 3
    assert "node." not in done.stderr


# --- the standard library's logging ---


@pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG])
def test_the_standard_logger(level: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(level, "weave"):
        plain()({"x": 1}, {})
        flush()
    said = [(record.levelname, record.getMessage().split()[0]) for record in caplog.records if record.name == "weave"]
    nodes = [("DEBUG", "node.started"), ("DEBUG", "node.finished")] * 2 if level == logging.DEBUG else []
    assert said == [("INFO", "run.started"), *nodes, ("INFO", "run.finished")]
    last = caplog.records[-1]
    assert last.weave_event == "run.finished"  # type: ignore[attr-defined]
    assert last.weave_fields["status"] == "ok"  # type: ignore[attr-defined]
    assert "status=ok" in last.getMessage()
    assert "duration_ms=" in last.getMessage()


@pytest.mark.anyio
async def test_the_context_filter(caplog: pytest.LogCaptureFixture) -> None:
    mine = logging.getLogger("mine")

    def say(x: Any) -> Any:
        mine.info("here")
        return x

    caplog.handler.addFilter(ContextFilter())
    try:
        with caplog.at_level(logging.DEBUG):
            stitched = chain(("one", say), ("two", say))
            await stitched.run({"x": 1}, {})
            mine.info("outside")
            flush()
    finally:
        caplog.handler.filters.clear()
    found = [
        (record.getMessage().split()[0], record.weave_run_id, record.weave_node)  # type: ignore[attr-defined]
        for record in caplog.records
        if record.name in ("mine", "weave")
    ]
    run = next(id for said, id, _ in found if said == "run.started")
    assert len(run) == 12
    assert [(id, node) for said, id, node in found if said == "here"] == [(run, "one"), (run, "two")]
    assert ("outside", "", "") in found
    assert ("node.finished", run, "two") in found
    assert ("run.finished", run, "") in found


# --- the application's structlog ---


def test_levels(log: Log) -> None:
    plain()({"x": 1}, {})
    lines = log.lines()
    assert {line["level"] for line in lines if line["event"].startswith("run.")} == {"info"}
    assert {line["level"] for line in lines if line["event"].startswith("node.")} == {"debug"}
    assert log.counts() == {
        "run.started": 1,
        "node.started": 2,
        "node.finished": 2,
        "user in one": 1,
        "user in two": 1,
        "run.finished": 1,
    }
    finished = log.lines("run.finished")[0]
    assert finished["status"] == "ok"
    assert finished["nodes"] == 2
    assert "weave_node" not in finished
    node = log.lines("node.finished")[1]
    assert node["weave_node"] == "two"
    assert 0 <= node["at_ms"] <= finished["at_ms"]


@pytest.mark.parametrize(("level", "heard"), [(logging.INFO, ["run.started", "run.finished"]), (logging.WARNING, [])])
def test_a_filtering_logger_is_asked(level: int, heard: list[str], log: Log) -> None:
    log.configure(level)
    chain(("f", abs))({"x": 1}, {})
    assert [line["event"] for line in log.lines()] == heard


@pytest.mark.parametrize(
    ("level", "heard"),
    [
        (logging.DEBUG, ["run.started", "node.started", "node.finished", "run.finished"]),
        (logging.INFO, ["run.started", "run.finished"]),
        (logging.WARNING, []),
    ],
)
@pytest.mark.parametrize("rendered", ["text", "fields"])
def test_structlog_over_the_standard_library(
    level: int, heard: list[str], rendered: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Rendered as text, and given on as fields of a log record, some of whose names the standard library keeps."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.filter_by_level,
            structlog.processors.JSONRenderer() if rendered == "text" else structlog.stdlib.render_to_log_kwargs,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
    )
    with caplog.at_level(level, "weave"):
        chain(("f", abs))({"x": 1}, {})
        flush()
    said = [record for record in caplog.records if record.name == "weave"]
    if rendered == "text":
        assert [json.loads(record.getMessage())["event"] for record in said] == heard
    else:
        assert [record.getMessage() for record in said] == heard
        assert all(len(record.weave_run_id) == 12 for record in said)  # type: ignore[attr-defined]


def test_an_async_logger_and_a_bare_one(log: Log) -> None:
    """An AsyncBoundLogger's methods give coroutines; a bare BoundLogger takes any attribute for a level."""
    for wrapper in (structlog.stdlib.AsyncBoundLogger, structlog.BoundLogger):
        log.stream = io.StringIO()
        log.configure()
        structlog.configure(**{**structlog.get_config(), "wrapper_class": wrapper})
        chain(("f", abs))({"x": 1}, {})
        assert log.counts() == {"run.started": 1, "node.started": 1, "node.finished": 1, "run.finished": 1}


def test_a_later_configuration_counts(log: Log) -> None:
    stitched, other = chain(("f", abs)), Log()
    stitched({"x": 1}, {})
    assert log.counts()["run.finished"] == 1
    other.configure(logging.WARNING)
    stitched({"x": 1}, {})
    other.configure(logging.INFO)
    stitched({"x": 1}, {})
    assert other.counts() == {"run.started": 1, "run.finished": 1}
    assert log.counts()["run.finished"] == 1


def test_what_the_application_has_bound_is_in_the_lines(log: Log) -> None:
    with bound_contextvars(request_id="r1"):
        plain()({"x": 1}, {})
        before = get_contextvars()
    assert before == {"request_id": "r1"}
    assert {line.get("request_id") for line in log.lines()} == {"r1"}
    assert len(log.lines()) == 8


def test_failures_are_logged(log: Log) -> None:
    def fail(x: Any) -> Any:
        user.info("user in bad", x=x)
        raise ValueError("none of\nthese")

    with pytest.raises(ValueError, match="none of"):
        chain(("bad", fail))({"x": 1}, {})
    with pytest.raises(ValueError, match="none of"):
        anyio.run(chain(("bad", fail)).run, {"x": 2}, {})
    for event in ("run.finished", "node.failed"):
        for line in log.lines(event):
            assert (line["error_type"], line["error"]) == ("ValueError", "none of\nthese")
    assert [line["status"] for line in log.lines("run.finished")] == ["failed", "failed"]
    assert len(log.lines("node.failed")) == 2
    check_bound(log.lines(), runs=2)
    assert get_contextvars() == {}


@pytest.mark.anyio
async def test_a_cancelled_run_is_logged(log: Log) -> None:
    begun = anyio.Event()

    async def forever(x: Any) -> None:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            user.info("user in waits", x=x)

    stitched = chain(("waits", forever))
    async with anyio.create_task_group() as group:
        group.start_soon(stitched.run, {"x": 1}, {})
        await begun.wait()
        group.cancel_scope.cancel()
    assert log.lines("run.finished")[0]["status"] == "cancelled"
    assert log.lines("node.cancelled")[0]["weave_node"] == "waits"
    check_bound(log.lines())
    assert get_contextvars() == {}


@pytest.mark.parametrize("broken", ["processor", "factory", "wrapper"])
def test_a_log_that_raises_fails_no_run(broken: str, log: Log, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise OSError("the log's disk is full")

    if broken == "processor":
        log.configure(logging.DEBUG, refuse)
    else:
        structlog.configure(**{"logger_factory" if broken == "factory" else "wrapper_class": refuse})
    stitched = chain(("f", abs))
    with caplog.at_level(logging.WARNING, "weave"):
        for _ in range(2):
            assert stitched({"x": -1}, {})["y"] == 1
            flush()
    assert len(caplog.records) == 1
    assert "the log's disk is full" in caplog.text
    log.configure()  # and once it is mended, lines come again
    assert stitched({"x": -1}, {})["y"] == 1
    assert log.counts()["run.finished"] == 1


def test_one_line_that_can_not_be_logged_costs_no_other(log: Log) -> None:
    def picky(logger: Any, method: str, line: Any) -> Any:
        if line["event"] == "node.started":
            raise TypeError("not that one")
        return line

    log.configure(logging.DEBUG, picky)
    chain(("f", abs))({"x": 1}, {})
    assert log.counts() == {"run.started": 1, "node.finished": 1, "run.finished": 1}


@pytest.mark.anyio
async def test_tensors_are_described_and_never_shown(log: Log) -> None:
    await chain(("double", lambda x: x * 2)).run({"x": torch.full((2, 3), 7.5)}, {})
    assert log.lines("node.finished")[0]["outputs"] == {"output()": "float32[2, 3]"}
    assert "15.0" not in log.stream.getvalue()
