"""The bar chart of the replace-one scores, as PNG and SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

# Two of the colours that Okabe and Ito (2008) chose to be told apart with any colour vision; they differ in
# lightness too, so the chart survives a black-and-white printer.
BEFORE_COLOUR = "#E69F00"
AFTER_COLOUR = "#0072B2"
_INK = "#222222"
_GRID = "#DDDDDD"


def draw_replace_one(
    folder: Path, *, blocks: Sequence[str], before: Sequence[float], after: Sequence[float], held_out: int, steps: int
) -> list[Path]:
    """Draw two bars a block and two for all together, last in ``before`` and ``after``; the two files in ``folder``.

    Scores are mean cosines to the teacher. The files depend on nothing but the arguments: no date, no random ids.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.patheffects import withStroke

    names = [block.replace(".ffn", "\nffn") for block in blocks] + ["all\ntogether"]
    # A gap before the last pair: it answers another question.
    places = [float(i) for i in range(len(blocks))] + [len(blocks) + 0.35]
    width = 0.38
    files = [folder / "replace-one.png", folder / "replace-one.svg"]
    with rc_context({"svg.hashsalt": "weave", "font.family": "DejaVu Sans", "font.size": 11, "text.color": _INK}):
        # Figure by itself, not pyplot: no window system, no state shared with the caller's own figures.
        figure = Figure(figsize=(9.6, 5.2), dpi=150, layout="constrained", facecolor="white")
        axes = figure.add_subplot(facecolor="white")
        pairs = (
            (before, -width / 2, BEFORE_COLOUR, "cut by neuron norm, untrained"),
            (after, width / 2, AFTER_COLOUR, f"after {steps} steps of training"),
        )
        for heights, shift, colour, label in pairs:
            bars = axes.bar([place + shift for place in places], heights, width * 0.94, color=colour, label=label)
            halo = [withStroke(linewidth=3, foreground="white")]  # where a number meets the teacher's line
            axes.bar_label(bars, fmt="%.2f", padding=2, fontsize=9.5, color=_INK, path_effects=halo)
        axes.axhline(1.0, color=_INK, linewidth=1, linestyle=(0, (4, 3)), zorder=0)
        axes.text(1.006, 1.0, "teacher", transform=axes.get_yaxis_transform(), va="center")
        axes.set_xticks(places, names)
        axes.set_ylim(min(0.0, *before, *after), 1.09)
        axes.set_ylabel("mean cosine to the teacher's embedding", color=_INK)
        axes.set_title(
            f"Students in the teacher's place: one block at a time, and all together ({held_out} held-out texts)",
            loc="left",
            fontsize=12.5,
            pad=34,
        )
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.005), ncols=2, frameon=False, borderaxespad=0.2)
        axes.grid(axis="y", color=_GRID, linewidth=0.8)
        axes.set_axisbelow(True)
        axes.tick_params(length=0, colors=_INK)
        axes.axvline(len(blocks) - 0.325, color=_GRID, linewidth=1)
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        figure.savefig(files[0])
        figure.savefig(files[1], metadata={"Date": None})
    return files
