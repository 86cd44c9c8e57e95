"""Running a page's blocks, as a reader would who types them one after another into one session."""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import linecache
import os
import re
import shlex
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio

import weave
from tests.docs.pages import Block, Page
from weave.cli import main

# Commands that are not `weave`'s own quick ones: they install, or compute for a minute.
NOT_OURS = ("pip install", "make ", "weave demo")
PYTEST = "python -m pytest"


class SnippetFailed(AssertionError):
    """A block did not do what the page says."""


def run(page: Page, name: str, directory: Path, backend: str) -> dict[str, Any]:
    """Run every block of a page; returns what its names stand for then. Modules in `directory` must be importable."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in page.blocks:
        where = f"{name}:{block.line}"
        if block.not_run:
            continue
        if block.language == "console":
            _console(block, where)
            continue
        first = block.text.partition("\n")[0]
        if first.startswith("# file: "):
            file = directory / first.removeprefix("# file: ")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text)
        _python(block, where, names, backend)
    return names


def _python(block: Block, where: str, names: dict[str, Any], backend: str) -> None:
    printed, raised = _call(lambda: _execute(block.text, where, names, backend))
    if raised is not None and block.expects != "raises":
        raise SnippetFailed(f"{where}: {''.join(traceback.format_exception_only(raised))}") from raised
    if block.expects == "raises":
        if raised is None:
            raise SnippetFailed(f"{where}: raised nothing; the page says\n{block.expected}")
        said = "".join(traceback.format_exception_only(raised))
        if not matches(" ".join(block.expected.split()), " ".join(said.split())):
            raise SnippetFailed(f"{where}: raised\n{said}and the page says\n{block.expected}") from raised
        if printed:
            raise SnippetFailed(f"{where}: raises as the page says, and also prints\n{printed}")
    elif not matches(block.expected, printed):
        raise SnippetFailed(f"{where}: printed\n{printed or '(nothing)'}\nand the page says\n{block.expected}")


def _call(function: Callable[[], None]) -> tuple[str, BaseException | None]:
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        try:
            function()
        except Exception as error:
            return written.getvalue(), error
    return written.getvalue(), None


def _execute(text: str, where: str, names: dict[str, Any], backend: str) -> None:
    linecache.cache[where] = (len(text), None, text.splitlines(True), where)  # for tracebacks that show the line
    code = compile(text, where, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    if not code.co_flags & inspect.CO_COROUTINE:
        exec(code, names)
        return

    async def within() -> None:
        await eval(code, names)

    anyio.run(within, backend=backend)


def _console(block: Block, where: str) -> None:
    command, expected = "", ""
    for line in [*block.text.splitlines(), "$"]:
        if not line.startswith("$"):
            expected += line + "\n"
            continue
        if command and not command.startswith(NOT_OURS):
            program, *arguments = shlex.split(command)
            if command.startswith(PYTEST):
                printed = _tested(arguments)
            elif program == "weave":
                printed = _printed(arguments)
            else:
                raise SnippetFailed(f"{where}: {command!r} is not the tests' to run; see NOT_OURS")
            if not matches(expected, printed):
                raise SnippetFailed(f"{where}: {command!r} printed\n{printed}\nand the page says\n{expected}")
        command, expected = line.removeprefix("$").strip(), ""


def _printed(arguments: list[str]) -> str:
    """What `weave` prints; `--version` and wrong arguments leave by `SystemExit`."""
    written = io.StringIO()
    with contextlib.redirect_stdout(written), contextlib.redirect_stderr(written), contextlib.suppress(SystemExit):
        main(arguments)
    return written.getvalue()


def _tested(arguments: list[str]) -> str:
    """What pytest prints, in a process of its own that sees this weave and what the page has on its path."""
    path = os.pathsep.join([str(Path(weave.__file__).parents[1]), *map(os.path.abspath, filter(None, sys.path))])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": ""}
    command = [sys.executable, *arguments, "-p", "no:cacheprovider"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout


def matches(expected: str, said: str) -> bool:
    """Whether a page's text is what was said, blanks at the ends of lines aside; `…` is anything within a line."""
    pattern = "\n".join(".*".join(map(re.escape, line.rstrip().split("…"))) for line in expected.strip().splitlines())
    return bool(re.fullmatch(pattern, "\n".join(line.rstrip() for line in said.strip().splitlines())))
