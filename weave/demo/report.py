"""What the job leaves behind: a table to read, the same numbers as JSON, the chart, both graphs as Mermaid, the trace.

Nothing that depends on the clock goes into the table, so that a resumed job's can be compared with a whole one's.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weave.demo.charts import draw_replace_one
from weave.demo.job import Result
from weave.observe import read_trace
from weave.observe.page import write_page

if TYPE_CHECKING:
    from rich.table import Table

TOGETHER = "all together"
PAGE_NAME = "trace.html"


@dataclass(frozen=True)
class Row:
    """A line of the table: what is replaced, and for each of three numbers what it was before and is after."""

    name: str
    parameters: tuple[int, int]
    cosine: tuple[float, float]
    top1: tuple[float, float]


def rows(result: Result) -> list[Row]:
    """One row for each block replaced alone, and a last one for all of them together, whose cosine is the headline.

    Parameters are the replaced blocks'; the scores are before and after the students' training.
    """
    counts = result.parameters
    alone = [
        Row(
            name=block,
            parameters=(counts.block_before[i], counts.block_after[i]),
            cosine=(result.before.alone[i].cosine, result.after.alone[i].cosine),
            top1=(result.before.alone[i].top1, result.after.alone[i].top1),
        )
        for i, block in enumerate(result.blocks)
    ]
    before, after = result.before.together, result.after.together
    together = Row(
        name=TOGETHER,
        parameters=(sum(counts.block_before), sum(counts.block_after)),
        cosine=(before.cosine, after.cosine),
        top1=(before.top1, after.top1),
    )
    return [*alone, together]


def headline(result: Result) -> str:
    """The numbers that decide, in two lines."""
    before, after = result.before.together, result.after.together
    counts = result.parameters
    saved = 1 - counts.encoder_after / counts.encoder_before
    return (
        f"mean cosine ({TOGETHER}): {before.cosine:.3f} -> {after.cosine:.3f}; "
        f"top-1 agreement: {before.top1:.1%} -> {after.top1:.1%}\n"
        f"encoder: {counts.encoder_before:,} -> {counts.encoder_after:,} parameters ({saved:.0%} fewer)"
    )


def overlap_line(result: Result) -> str:
    """How much of the students' time the teacher's forward covered, in a sentence; empty where no step was done."""
    overlap = result.overlap
    if not overlap.steps:
        return ""
    earlier = result.settings.steps - overlap.steps
    return (
        f"students trained {overlap.student_seconds:.1f} s, of which {overlap.covered_seconds:.1f} s "
        f"({overlap.share:.0%}) while the teacher's forward was still going on"
        + (f" (in the {overlap.steps} steps since the resume)" if earlier else "")
    )


def table(result: Result) -> Table:
    """The table, for rich."""
    from rich import box
    from rich.table import Table

    made = Table(
        title=f"Students in the teacher's place, on {result.settings.held_out} held-out texts, "
        f"before -> after {result.settings.steps} steps",
        box=box.SIMPLE_HEAD,
        title_justify="left",
        title_style="bold",
    )
    made.add_column("replaced", no_wrap=True)
    for name in ("parameters", "cosine to teacher", "top-1 agreement"):
        made.add_column(name, justify="right", no_wrap=True)
    for row in rows(result):
        last = row.name == TOGETHER
        if last:
            made.add_section()
        made.add_row(
            row.name,
            f"{row.parameters[0]:,} -> {row.parameters[1]:,}",
            f"{row.cosine[0]:.4f} -> {row.cosine[1]:.4f}",
            f"{row.top1[0]:.1%} -> {row.top1[1]:.1%}",
            style="bold" if last else None,
        )
    return made


def table_text(result: Result) -> str:
    """The table and the headline as plain text, the same on every terminal."""
    from io import StringIO

    from rich.console import Console

    stream = StringIO()
    Console(file=stream, width=100, color_system=None, force_terminal=False).print(table(result))
    lines = [line.rstrip() for line in stream.getvalue().splitlines()]
    return "\n".join(lines).strip("\n") + "\n\n" + headline(result) + "\n"


def as_dict(result: Result) -> dict[str, Any]:
    """The result as plain data for JSON; the graphs are left to files of their own."""
    return {
        "settings": asdict(result.settings),
        "improved": result.improved,
        "mean_cosine": {"before": result.before.together.cosine, "after": result.after.together.cosine},
        "parameters": {**asdict(result.parameters), "encoder_after": result.parameters.encoder_after},
        "rows": [asdict(row) for row in rows(result)],
        "blocks": list(result.blocks),
        "losses": [list(row) for row in result.losses],
        # The one part of it that is not the same each time.
        "overlap": {**asdict(result.driver), **asdict(result.overlap), "covered_share": result.overlap.share},
        "trace": [result.trace.name, PAGE_NAME] if result.trace is not None else [],
    }


def write(result: Result, folder: Path) -> Sequence[Path]:
    """Write every file of the report into ``folder``, which must exist; the files, the table's first."""
    texts = {
        "table.txt": table_text(result),
        "report.json": json.dumps(as_dict(result), indent=1) + "\n",
        "graph.mmd": result.training_graph.rstrip("\n") + "\n",
        "scoring.mmd": result.scoring_graph.rstrip("\n") + "\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    pictures = draw_replace_one(
        folder,
        blocks=result.blocks,
        before=[*(score.cosine for score in result.before.alone), result.before.together.cosine],
        after=[*(score.cosine for score in result.after.alone), result.after.together.cosine],
        held_out=result.settings.held_out,
        steps=result.settings.steps,
    )
    recorded = []
    if result.trace is not None:
        recorded = [result.trace, write_page(read_trace([result.trace]), folder / PAGE_NAME)]
    return [*(folder / name for name in texts), *pictures, *recorded]
