"""A graph in Graphviz' DOT language, for whoever has Graphviz or a tool that reads it. Written without either."""

from __future__ import annotations

from collections.abc import Collection

from weave.graph.picture import Heat, Picture, Shape, palette, step, written

# By kind: Graphviz' shape and style. A box of two edges stands for a plugin's kind of target.
_FORMS: dict[Shape, str] = {
    "module": 'shape=box style="filled"',
    "function": 'shape=box style="rounded,filled"',
    "constant": 'shape=note style="filled"',
    "other": 'shape=box peripheries=2 style="filled"',
    "remote": 'shape=box style="rounded,filled,dashed"',
    "caller": 'shape=oval style="filled"',
}
_FILLS: dict[Shape, str] = {
    "module": "#e6f1f9", "function": "#e3f5ee", "constant": "#fdf3dc", "other": "#f9ebf3", "remote": "#fbece1",
    "caller": "#f0f2f4",
}  # fmt: skip


def dot(picture: Picture, heat: Heat | None = None, outlined: Collection[str] = (), caption: str = "") -> str:
    """The picture as a `digraph`: a line for each box, then one for each stitch.

    `heat` colours nodes and says a number in each, `outlined` nodes get a thick edge, `caption` stands below it all.
    """
    heat = heat or {}
    lines = ["digraph weave {", '    node [fontname="Helvetica"]', '    edge [fontname="Courier" fontsize=10]']
    if caption:
        lines.append(f'    label={quoted(caption)} labelloc=b fontname="Helvetica" fontsize=10')
    drawn: dict[int | None, list[str]] = {}  # by rank: its boxes stand in a frame of their own
    for index, box in enumerate(picture.boxes):
        texts = [text for text in (box.node, box.what) if text]
        fill, extra = _FILLS[box.shape], ""
        if box.shape != "caller":
            if box.node in heat:
                share, number = heat[box.node]
                texts.append(number)
                colour, ink = palette()[step(share)]
                fill, extra = written(colour), f' fontcolor="{written(ink)}"'
            if box.node in outlined:
                extra += " penwidth=4"
        node = f'    n{index} [label={quoted(*texts)} {_FORMS[box.shape]} fillcolor="{fill}"{extra}]'
        drawn.setdefault(box.rank, []).append(node)
    lines += drawn.pop(None, [])
    for rank, nodes in sorted(drawn.items(), key=str):
        head = f'    subgraph cluster_{rank} {{ label="rank {rank}" fontname="Helvetica" style="rounded,dashed"'
        lines += [head, *(f"    {node}" for node in nodes), "    }"]
    for link in picture.links:
        for stitch in link.stitches:
            label = f"label={quoted(stitch.text)} " if stitch.text else ""
            ends = f"n{link.source} -> n{link.destination}"
            lines.append(f"    {ends} [{label}tooltip={quoted(stitch.title)}]")
    return "\n".join([*lines, "}"]) + "\n"


def quoted(*texts: str) -> str:
    r"""A DOT string of these lines. A backslash would begin an escape such as `\N`, and a null end the file."""
    lines = (" ".join(text.replace("\0", "\ufffd").split()) for text in texts)
    return '"' + "\\n".join(line.replace("\\", "\\\\").replace('"', '\\"') for line in lines) + '"'
