"""The page's file: template, style, script and data in one, and a policy that forbids it everything else.

Names of nodes are anybody's text. They stand in the page as JSON in which no tag can begin, are shown as text nodes and
on canvas only, and were one of them to become markup all the same, the policy runs no script but ours, by its digest.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from importlib.resources import files
from pathlib import Path
from string import Template

from weave.errors import TraceException
from weave.observe.page.content import content
from weave.observe.trace import Trace

# One after the other in one function, so that they share their names and the page has but one: `weavePage`.
SCRIPTS = ("model.js", "surface.js", "timeline.js", "graph.js", "tip.js", "page.js")


def render_page(trace: Trace) -> str:
    """The page of a trace, as text: runs to choose from, a timeline and the graph beside it."""
    style = _asset("page.css")
    script = '"use strict";\n(() => {\n' + "\n".join(_asset(name) for name in SCRIPTS) + "})();\n"
    policy = (
        f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    data = content(trace)
    title = f"weave · {data['program']}" if data["program"] else "weave"
    return Template(_asset("template.html")).substitute(
        policy=policy, title=html.escape(title), style=style, script=script, data=embedded(data)
    )


def write_page(trace: Trace, path: str | Path) -> Path:
    """Write the page of a trace to a file, and say which.

    Raises:
        TraceException: the file can't be written.
    """
    path = Path(path)
    try:
        path.write_text(render_page(trace), encoding="utf-8", newline="\n")
    except OSError as error:
        raise TraceException(f"{path} can't be written: {error.strerror or error}", path=str(path)) from error
    return path


def embedded(data: object) -> str:
    """JSON for the inside of a script element: ASCII, so that every name can be written, and without a `<` or `>`."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for mark in "<>&":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return text


def _asset(name: str) -> str:
    """A file beside this one, its lines ended as a browser reads them: digests are of what it has read."""
    return (files(__package__) / name).read_text(encoding="utf-8").replace("\r\n", "\n")


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
