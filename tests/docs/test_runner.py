"""The tests of the documentation fail where a page is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import BOTH, read
from tests.docs.running import SnippetFailed, matches, run


def go(text: str, directory: Path, backend: str = "asyncio") -> None:
    page = read(text)
    assert not page.faults, page.faults
    run(page, "page.md", directory, backend)


def python(code: str) -> str:
    return f"```python\n{code}\n```\n"


def says(what: str, text: str) -> str:
    return f"\nIt {what}:\n\n```text\n{text}\n```\n"


RAISES = python("error = ValueError('no such thing')\nerror.add_note('a note')\nraise error")


@pytest.mark.parametrize(
    "text",
    [
        python("x = 1") + python("print(x)") + says("prints", "1"),
        python("print('id 3f, done')\nprint()\nprint('two  ')") + says("prints", "id …, done\n\ntwo"),
        RAISES + says("raises", "ValueError: no\nsuch thing\na note"),
        "<!-- python\nx = 1\n-->\n" + python("print(x)") + says("prints", "1"),
        python("import anyio\nawait anyio.sleep(0)\nprint('slept')") + says("prints", "slept"),
        "<!-- not run: it would take a minute -->\n\n" + python("raise ValueError"),
        python("# file: beside.py\nX = 3") + python("import beside\nprint(beside.X)") + says("prints", "3"),
        python("# file: under/beside.py\nX = 3") + python("import under.beside"),
        python("x = 1") + "\n```text\nnothing to compare\n```\n",
        "```console\n$ weave --version\nweave-dataflow …\n```\n",
    ],
)
def test_a_page_that_is_right(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    go(text, tmp_path)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (python("print(1)") + says("prints", "2"), "page.md:2: printed\n1\n"),
        (python("print(1)"), "printed\n1\n"),
        (python("pass") + says("prints", "1"), "nothing"),
        (python("raise ValueError('x')"), "ValueError: x"),
        (python("assert 1 == 2"), "AssertionError"),
        (python("pass") + says("raises", "ValueError"), "raised nothing"),
        (RAISES + says("raises", "ValueError: no such thing"), "a note"),
        ("<!-- python\nassert not 1\n-->\n", "AssertionError"),
        (python("import anyio\nawait anyio.sleep(0)\nraise KeyError(1)"), "KeyError"),
        (python("x = 1") + python("print(x)") + says("prints", "1") + python("print(y)"), "page.md:14: NameError"),
        ("```console\n$ weave --version\nweave 3\n```\n", "weave-dataflow"),
        ("```console\n$ rm nothing\n```\n", "not the tests' to run"),
    ],
)
def test_a_page_that_is_wrong(text: str, match: str, tmp_path: Path) -> None:
    with pytest.raises(SnippetFailed, match=match):
        go(text, tmp_path)


PASSES = python("# file: test_it.py\nimport weave\n\n\ndef test_it():\n    assert weave.Needle is not None")


def test_a_pages_own_tests_are_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = "```console\n$ python -m pytest -q test_it.py\n. …\n… passed in …\n```\n"
    go(PASSES + command, tmp_path)
    with pytest.raises(SnippetFailed, match="1 failed in"):
        go(PASSES.replace("is not None", "is None") + command, tmp_path)


def test_faults_of_form() -> None:
    assert "'py'" in read("```py\nx = 1\n```\n").faults[0]
    assert "'{note}'" in read("```{note}\n\nx\n```\n").faults[0]
    assert "'no language'" in read("```\nx = 1\n```\n").faults[0]
    assert "means nothing" in read("<!-- Python\nx = 1\n-->\n").faults[0]
    assert "could have printed" in read("It prints:\n\n```text\n1\n```\n").faults[0]


def test_a_page_runs_on_trio_where_it_says_so(tmp_path: Path) -> None:
    text = f"{BOTH}\n\n" + python(
        "import sniffio\nprint(sniffio.current_async_library())\nawait __import__('anyio').sleep(0)"
    )
    assert read(text).backends == ("asyncio", "trio")
    go(text + says("prints", "trio"), tmp_path, "trio")
    with pytest.raises(SnippetFailed):
        go(text + says("prints", "trio"), tmp_path, "asyncio")


def test_links_and_anchors() -> None:
    page = read(
        "# Values leave, while `run` goes on\n\nSee [this](a.md#b) and ![that](c.png) and <https://example.com>.\n"
    )
    assert page.anchors == {"values-leave-while-run-goes-on"}
    assert page.links == ["a.md#b", "https://example.com"]


@pytest.mark.parametrize(
    ("expected", "said", "same"),
    [("a…c", "abc", True), ("a…c", "a\nc", False), ("a.c", "abc", False), ("a\n", "a", True)],
)
def test_matching(expected: str, said: str, same: bool) -> None:
    assert matches(expected, said) is same
