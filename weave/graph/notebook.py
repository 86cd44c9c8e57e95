"""How a plan shows in a notebook: as a picture, else as its text."""

from __future__ import annotations

from weave.graph.picture import picture_of
from weave.graph.plan import Plan
from weave.graph.svg import clean, svg

MOST = 200  # units; more than that is no picture to look at between two cells


def html(plan: Plan) -> str:
    """The picture, where igraph is there to lay it out and it is small enough; the text otherwise. Never raises."""
    try:
        if len(plan.units) <= MOST:
            return f'<div style="overflow:auto">{svg(picture_of(plan))}</div>'
    except Exception:
        # a notebook shows a failing representation instead of the user's own output
        pass
    try:
        text = str(plan)
    except Exception:
        text = repr(plan)
    return f"<pre>{clean(text)}</pre>"
