"""Every block of code in the documentation runs and does what its page says. `tests.docs.pages` has the conventions."""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import weave
import weave.errors
import weave.observe
import weave.remote
from tests.docs.pages import DOCS, PAGES, read
from tests.docs.running import NOT_OURS, run
from weave.plugins import PluginSet

# What may stay unrun, by page: how many blocks, and commands by name.
NOT_RUN: dict[str, int] = {}
COMMANDS_NOT_RUN = ["pip install weave-dataflow", "pip install -e weave-strongest"]
WITHOUT_SNIPPETS = {"reference.md"}

BY_NAME = {path.relative_to(DOCS).as_posix(): read(path.read_text()) for path in PAGES}


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty one, whose modules can be imported and are forgotten afterwards, also as plugins."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]
    PluginSet.forget()


@pytest.mark.parametrize(
    ("name", "backend"), [(name, backend) for name, page in BY_NAME.items() for backend in page.backends]
)
def test_a_pages_snippets_do_what_it_says(name: str, backend: str, directory: Path) -> None:
    run(BY_NAME[name], name, directory, backend)


def test_pages_keep_to_the_conventions() -> None:
    assert not {name: page.faults for name, page in BY_NAME.items() if page.faults}


def test_only_pages_without_code_have_none() -> None:
    assert {name for name, page in BY_NAME.items() if not page.blocks} == WITHOUT_SNIPPETS


def test_what_is_not_run_is_counted() -> None:
    skipped = {name: sum(bool(block.not_run) for block in page.blocks) for name, page in BY_NAME.items()}
    assert {name: count for name, count in skipped.items() if count} == NOT_RUN
    lines = [
        line for page in BY_NAME.values() for b in page.blocks if b.language == "console" for line in b.text.split("\n")
    ]
    commands = [line.removeprefix("$").strip() for line in lines if line.startswith("$")]
    assert [command for command in commands if command.startswith(NOT_OURS)] == COMMANDS_NOT_RUN


def test_links_between_pages_lead_somewhere() -> None:
    dead, inside = [], 0
    for name, page in BY_NAME.items():
        for link in page.links:
            path, _, anchor = link.partition("#")
            if "://" in link:
                continue
            inside += 1
            path = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
            there = BY_NAME.get(path)
            if (there is None and not (DOCS / path).is_file()) or (anchor and there and anchor not in there.anchors):
                dead.append(f"{name}: {link}")
    assert not dead
    assert inside


def test_the_reference_has_every_public_name() -> None:
    text = (DOCS / "reference.md").read_text()
    assert "automodule:: weave.errors" in text
    named = set(re.findall(r":: weave\.(\w+)", text)) | set(vars(weave.errors))
    assert not set(weave.__all__) - {"__version__"} - named
    assert not set(weave.observe.__all__) - set(re.findall(r":: weave\.observe\.(\w+)", text))
    assert not set(weave.remote.__all__) - set(re.findall(r":: weave\.remote\.(\w+)", text))
