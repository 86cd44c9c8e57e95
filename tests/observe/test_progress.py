"""`Progress`: what a terminal shows of runs; nothing where there is none; in nobody's way."""

from __future__ import annotations

import builtins
import io
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest
from rich.console import Console

from tests.observe.graphs import chain
from weave.observe import Progress, flush, progress


class Terminal(Console):
    """A terminal 100 wide, whose text can be read."""

    def __init__(self, *, terminal: bool = True) -> None:
        self.written = io.StringIO()
        super().__init__(
            file=self.written,
            force_terminal=terminal,
            width=100,
            height=20,
            color_system=None,
            _environ={"TERM": "xterm"},
        )

    def drawn(self, shown: Progress) -> list[str]:
        """What would be drawn now."""
        flush()
        paper = Console(file=io.StringIO(), width=100)
        with paper.capture() as got:
            paper.print(shown.drawing())
        return [line.rstrip() for line in got.get().splitlines() if line.strip()]


class Steps:
    """A function that waits in its thread until it is let go, once for each call."""

    def __init__(self) -> None:
        self.entered, self.go_on = threading.Semaphore(0), threading.Semaphore(0)

    def __call__(self, x: Any) -> Any:
        self.entered.release()
        assert self.go_on.acquire(timeout=60)
        return x


@pytest.fixture
def elsewhere() -> Iterator[Callable[..., None]]:
    """Starts functions in threads, which are over before the test is."""
    threads: list[threading.Thread] = []

    def start(function: Callable[..., Any], *args: Any) -> None:
        threads.append(threading.Thread(target=function, args=args))
        threads[-1].start()

    yield start
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_a_long_run_has_a_bar(elsewhere: Any) -> None:
    steps, console = Steps(), Terminal()
    stitched = chain(("quick", abs), ("slow", steps), ("last", abs))
    with Progress(console, after=0) as shown:
        elsewhere(stitched, {"x": 1}, {})
        assert steps.entered.acquire(timeout=60)
        (row,) = console.drawn(shown)
        assert "1/3 nodes" in row
        assert row.endswith(" s  slow")
        assert "━" in row
        steps.go_on.release()
    assert console.written.getvalue().startswith("\x1b[?25l")  # the cursor is hidden,
    assert "\x1b[?25h" in console.written.getvalue()  # and shown again


def test_many_runs_are_counted(elsewhere: Any) -> None:
    steps, console = Steps(), Terminal()

    def fail(x: Any) -> Any:
        raise ValueError

    with Progress(console, after=0) as shown:
        chain(("f", abs))({"x": 1}, {})
        assert console.drawn(shown)[0].startswith("1 run done, ")
        assert console.drawn(shown)[0].endswith("/s")
        with pytest.raises(ValueError):
            chain(("f", fail))({"x": 1}, {})
        for _ in range(6):
            elsewhere(chain(("slow", steps)), {"x": 1}, {})
            assert steps.entered.acquire(timeout=60)
        rows = console.drawn(shown)
        assert [row.endswith("slow") for row in rows] == [True] * progress.ROWS + [False]
        assert rows[-1].startswith("2 runs done, 1 of them not ok, 6 under way, ")
        for _ in range(6):
            steps.go_on.release()


def test_a_short_run_has_no_row(elsewhere: Any) -> None:
    """Only that it is under way, and that not where it is the first."""
    steps, console = Steps(), Terminal()
    stitched = chain(("slow", steps))
    with Progress(console) as shown:
        frozen = progress.clock()
        for expected in ([], ["2 runs under way"]):
            elsewhere(stitched, {"x": 1}, {})
            assert steps.entered.acquire(timeout=60)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(progress, "clock", lambda: frozen)
                assert console.drawn(shown) == expected
        for _ in range(2):
            steps.go_on.release()


@pytest.mark.anyio
async def test_a_stream(anyio_backend_name: str) -> None:
    console = Terminal()
    waiting, go_on = anyio.Event(), anyio.Event()

    async def waits(x: int) -> int:
        if x == 2:
            waiting.set()
            await go_on.wait()
        return x

    with Progress(console, after=0) as shown:
        async with chain(("waits", waits)).stream(({"x": x} for x in range(3)), in_flight=1) as results:
            assert (await anext(results))["y"] == 0
            assert (await anext(results))["y"] == 1
            await waiting.wait()
            row, counts = console.drawn(shown)
            assert row.endswith("waits")
            assert counts.startswith("2 runs done, 1 under way, ")
            go_on.set()
            assert [out["y"] async for out in results] == [2]
    assert shown._live is None


@pytest.mark.parametrize("used", ["with", "options"])
def test_nothing_where_there_is_no_terminal(used: str) -> None:
    console = Terminal(terminal=False)
    shown, before = Progress(console), threading.active_count()
    stitched = chain(("f", abs))
    if used == "with":
        with shown:
            stitched({"x": 1}, {})
            flush()
    else:
        stitched.with_options(observers=[shown])({"x": 1}, {})
        flush()
    assert console.written.getvalue() == ""
    assert "weave progress" not in {thread.name for thread in threading.enumerate()}
    assert threading.active_count() <= before + 1  # the scribe


@pytest.mark.parametrize("environment", [{"RANK": "1", "WORLD_SIZE": "2"}, {}])
def test_one_rank_shows_it(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    console = Terminal()
    with Progress(console):
        chain(("f", abs))({"x": 1}, {})
    assert bool(console.written.getvalue()) is (not environment)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Terminal()
    shown = Progress(console)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    chain(("f", abs)).with_options(observers=[shown])({"x": 1}, {})
    flush()
    assert console.written.getvalue() == ""


def test_in_options_it_comes_and_goes(elsewhere: Any) -> None:
    """It leaves `sys.stdout` as it is, and is gone when nothing has been under way for a moment."""
    steps, console = Steps(), Terminal()
    shown = Progress(console, after=0)
    stitched = chain(("slow", steps)).with_options(observers=[shown])
    for _ in range(2):
        before = len(console.written.getvalue())
        elsewhere(stitched, {"x": 1}, {})
        assert steps.entered.acquire(timeout=60)
        stdout = sys.stdout
        (row,) = console.drawn(shown)
        assert row.endswith("slow")
        assert shown._live is not None
        assert sys.stdout is stdout
        steps.go_on.release()
        assert shown._hidden.wait(60)
        assert "\x1b[?25h" in console.written.getvalue()[before:]


def test_in_a_display_of_the_programs_own(elsewhere: Any) -> None:
    steps, console = Steps(), Terminal()
    with Progress(console, after=0, draws=False) as shown:
        elsewhere(chain(("slow", steps)), {"x": 1}, {})
        assert steps.entered.acquire(timeout=60)
        (row,) = console.drawn(shown)
        assert row.endswith("slow")
        steps.go_on.release()
    assert console.written.getvalue() == ""


def test_what_the_program_prints_stands_above_it() -> None:
    console = Terminal()
    stdout = sys.stdout
    with Progress(console):
        print("said meanwhile")
    assert sys.stdout is stdout
    assert "said meanwhile" in console.written.getvalue()


def test_a_terminal_that_goes_away_fails_no_run(caplog: pytest.LogCaptureFixture) -> None:
    class Gone(io.StringIO):
        closing = False

        def write(self, text: str) -> int:
            if self.closing:
                raise OSError("no terminal")
            return super().write(text)

    console = Terminal()
    console._file = file = Gone()
    with caplog.at_level("WARNING", "weave"), Progress(console) as shown:
        chain(("f", abs))({"x": 1}, {})
        file.closing = True
        while shown._live is not None:  # until its thread has found out
            threading.Event().wait(0.01)
        assert chain(("f", abs))({"x": -1}, {})["y"] == 1
    assert "no terminal" in caplog.text


def test_without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    found = builtins.__import__

    def without(name: str, *args: Any) -> Any:
        if name.startswith("rich"):
            raise ImportError(name)
        return found(name, *args)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'weave-dataflow\[progress\]'"):
        Progress()
