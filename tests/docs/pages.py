"""Reading a page of the documentation: its blocks of code, what each shall print or raise, its links and headings.

How a page says what (markdown-it reads it, so a fence in a quotation or a list is one too):

- Every ```` ```python ```` block is run, in order, all of a page in one namespace and one empty directory. A block with
  `await` at its top level runs on an event loop of its own; a block that begins with `# file: NAME` is also written there.
- A `text` block is compared with what ran before it where the paragraph in front of it ends in "prints" or "raises".
  `…` stands for anything within a line. What is printed is compared line by line, what is raised (type, message, notes)
  word by word, so that a long message may be wrapped. A block that prints or raises must be followed by one.
- A `console` block holds commands (`$ weave ...`, `$ python -m pytest ...`) and what they print.
- `<!-- python` opens a comment with hidden code: set-up that would be in a reader's way, or a check of what the prose says.
- `<!-- not run: REASON -->` in front of a block keeps it from being run; the tests count these.
- `<!-- runs on asyncio and trio -->` has the page run once on each. Otherwise its loops are asyncio's.

Nested fences can't be seen in a fenced directive: directives around code are written with colons, `:::{note}`.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from markdown_it import MarkdownIt
from markdown_it.token import Token

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)

BOTH = "<!-- runs on asyncio and trio -->"
_HIDDEN = re.compile(r"<!-- python\n(.*?)-->\s*\Z", re.DOTALL)
_NOT_RUN = re.compile(r"<!-- not run: (\S.*?) -->\s*\Z", re.DOTALL)
_EXPECTS = re.compile(r"\b(prints|raises)\W*\Z")
_DIRECTIVES = ("{toctree}", "{eval-rst}")
_CAN_BE_RUN = ("python", "console")
_CAN_NOT = ("text", "mermaid", "toml")


@dataclass
class Block:
    """Code of a page, and what shall come of it."""

    language: str
    text: str
    line: int  # the code's first, counted from 1
    hidden: bool = False
    expects: Literal["", "prints", "raises"] = ""
    expected: str = ""
    not_run: str = ""


@dataclass
class Page:
    """A page's blocks, links and headings; `faults` are the places at which it doesn't keep to the rules."""

    blocks: list[Block] = field(default_factory=list)
    backends: tuple[str, ...] = ("asyncio",)
    links: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)


def read(text: str) -> Page:
    """Read a page."""
    page = Page(backends=("asyncio", "trio") if text.lstrip().startswith(BOTH) else ("asyncio",))
    said = ""  # the paragraph just passed
    reason = ""  # of a `not run` just passed
    for token in MarkdownIt("commonmark").parse(text):
        line = token.map[0] + 1 if token.map else 0
        if token.type == "fence":
            _fence(page, token, line + 1, said, reason)
        elif token.type == "html_block":
            hidden = _HIDDEN.fullmatch(token.content)
            if hidden:
                page.blocks.append(Block("python", hidden[1], line + 1, hidden=True))
            elif not _NOT_RUN.fullmatch(token.content) and token.content.strip() != BOTH:
                page.faults.append(f"line {line}: HTML, or a comment that means nothing to the tests")
        elif token.type == "inline":
            page.links += [str(t.attrs["href"]) for t in token.children or () if t.type == "link_open"]
        if token.type in ("fence", "html_block"):
            given = _NOT_RUN.fullmatch(token.content) if token.type == "html_block" else None
            said, reason = "", given[1] if given else ""
        elif token.type == "inline":
            said = token.content
    page.anchors = {_slug(heading) for heading in _headings(text)}
    return page


def _fence(page: Page, token: Token, line: int, said: str, reason: str) -> None:
    language = token.info.strip()
    expects = _EXPECTS.search(said)
    if language in _CAN_BE_RUN:
        page.blocks.append(Block(language, token.content, line, not_run=reason))
    elif language == "text" and expects:
        ran = next((b for b in reversed(page.blocks) if not b.hidden), None)
        if ran is None or ran.language != "python" or ran.expects or ran.not_run:
            page.faults.append(f"line {line}: no python block in front of this could have printed or raised it")
        else:
            ran.expects, ran.expected = "prints" if expects[1] == "prints" else "raises", token.content
    elif language not in _CAN_NOT and not language.split(" ")[0].startswith(_DIRECTIVES):
        page.faults.append(f"line {line}: a block of {language or 'no language'!r} is nothing that the tests know")


def _headings(text: str) -> list[str]:
    tokens = MarkdownIt("commonmark").parse(text)
    return [after.content for token, after in itertools.pairwise(tokens) if token.type == "heading_open"]


def _slug(heading: str) -> str:
    """A heading's anchor, as GitHub and MyST make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
