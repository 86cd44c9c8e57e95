"""A graph as SVG: no scripts, no network, no ids (several may stand on one page), light and dark by the reader's settings.

Every box is `<g class="box" data-node="…">`, every link `<g class="link" data-stitches="0 3">`, so that a page around it
can find them. Its rules are all below `.weave-graph`: an SVG's style sheet holds for the whole page that it stands in.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection
from html import escape

from weave.graph.layout import Pass, Place, Size, laid_out, ranks_of
from weave.graph.picture import COLD_TO_HOT, Box, Heat, Link, Picture, palette, step, written

NAME, SMALL, LINE, PAD = 13, 11, 16.0, 14.0
LONGEST = 44  # characters of a name or a label; the whole of it is in the title
MOST_LABELLED = 1500  # links; a larger picture is looked at as a whole, and its labels are in the titles

_NARROW, _WIDE = frozenset("iljtfrI.,:;'|!()[]{} \"`"), frozenset("mwMW@%#&—…→")
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

# Okabe and Ito's colours for the kinds, pale inside. The kind is also said by the box's form and by its second line.
_LIGHT = {
    "canvas": "#ffffff", "ink": "#1b1f24", "soft": "#57606a", "line": "#6e7781", "touched": "#0072b2",
    "module": "#e6f1f9", "function": "#e3f5ee", "constant": "#fdf3dc", "other": "#f9ebf3", "remote": "#fbece1",
    "caller": "#f0f2f4",
}  # fmt: skip
_DARK = {
    "canvas": "#14171c", "ink": "#eceff3", "soft": "#a9b3bf", "line": "#8b96a3", "touched": "#56b4e9",
    "module": "#12303f", "function": "#0f342a", "constant": "#3a2f10", "other": "#3a2130", "remote": "#41230f",
    "caller": "#272c34",
}  # fmt: skip
_EDGES = {
    "module": ("#0072b2", "#56b4e9"), "function": ("#00805d", "#2fbf95"), "constant": ("#a36f00", "#e69f00"),
    "other": ("#a8507f", "#cc79a7"), "remote": ("#c04f00", "#e8864a"), "caller": ("#6e7781", "#8b96a3"),
}  # fmt: skip


def svg(picture: Picture, heat: Heat | None = None, outlined: Collection[str] = (), caption: str = "") -> str:
    """The picture. `heat` colours boxes by node, `outlined` nodes get a thick edge, `caption` says what both mean.

    Raises:
        ModuleNotFoundError, ValueError: it can't be laid out; see `weave.graph.layout.laid_out`.
    """
    heat = heat or {}
    texts = [_lines(box, heat) for box in picture.boxes]
    ends = Counter(link.source for link in picture.links), Counter(link.destination for link in picture.links)
    sizes = [_size(lines, max(some[index] for some in ends)) for index, lines in enumerate(texts)]
    links = [(link.source, link.destination) for link in picture.links]
    labels: list[Size | None] = [None] * len(links)
    if len(links) <= MOST_LABELLED:
        labels = [_label_size(link) for link in picture.links]
    layout = laid_out(sizes, links, labels, ranks_of(len(sizes), links, picture.given, picture.taken))

    parts = [_link(*each) for each in zip(picture.links, layout.lines, layout.labels, strict=True)]
    parts += [
        _box(box, at, lines, heat.get(box.node), box.node in outlined and box.shape != "caller")
        for box, at, lines in zip(picture.boxes, layout.boxes, texts, strict=True)
    ]
    width, height = layout.width, layout.height
    if caption:
        wide = text_width(caption, SMALL) + (COLD_TO_HOT * 16 + 10 if heat else 0) + 32
        if wide > width:
            parts = [f'<g transform="translate({(wide - width) / 2:.1f} 0)">', *parts, "</g>"]
        parts.append(_caption(caption, bool(heat), height + 4))
        width, height = max(width, wide), height + 30
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    count = sum(box.shape != "caller" for box in picture.boxes)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="weave-graph" role="img" {size}>'
    title = f"<title>A graph of {count} nodes and {sum(len(link.stitches) for link in picture.links)} stitches</title>"
    style = f"<style>{_style(bool(heat))}</style>"
    return "\n".join([head, title, style, '<rect class="canvas" width="100%" height="100%"/>', *parts, "</svg>\n"])


def text_width(text: str, size: float, fixed: bool = False, bold: bool = False) -> float:
    """About how wide a text is, in pixels. The reader's font isn't known, so this errs on the wide side."""
    total = 0.0
    for character in text:
        if unicodedata.combining(character):
            continue
        if unicodedata.east_asian_width(character) in "WF":
            total += 1.05
        elif fixed:
            total += 0.61
        elif character in _NARROW:
            total += 0.36
        elif character in _WIDE:
            total += 0.95
        else:
            total += 0.7 if character.isupper() else 0.59
    return total * size * (1.14 if bold else 1.02)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST * 2 // 3]}…{text[1 - LONGEST // 3 :]}"


def clean(text: str) -> str:
    """Text for XML: escaped, and what XML can't hold at all replaced."""
    return escape(_NOT_XML.sub("\ufffd", text))


def _lines(box: Box, heat: Heat) -> list[tuple[str, str]]:
    """A box's lines: class and text."""
    lines = [("name", _short(box.node))]
    if box.below:
        lines.append(("what", _short(box.below)))
    if box.node in heat and box.shape != "caller":
        lines.append(("heat", heat[box.node][1]))
    return lines


def _size(lines: list[tuple[str, str]], ends: int) -> Size:
    """A box's size: room for its lines of text, and for the lines that end there side by side."""
    widths = [text_width(text, NAME if kind == "name" else SMALL + 1, bold=kind != "what") for kind, text in lines]
    return max(64.0, max(widths) + 2 * PAD, min(12.0 * ends, 480.0) + 2 * PAD), LINE * len(lines) + 14.0


def _label_size(link: Link) -> Size | None:
    texts = [_short(stitch.text) for stitch in link.stitches if stitch.text]
    return (max(text_width(t, SMALL, fixed=True) for t in texts) + 8.0, 14.0 * len(texts) + 2.0) if texts else None


def _link(link: Link, line: list[Pass], label: Place | None) -> str:
    title = "\n".join(stitch.title for stitch in link.stitches)
    slots = " ".join(str(stitch.slot) for stitch in link.stitches)
    end = line[-1]
    parts = [
        f'<g class="link" data-stitches="{slots}"><title>{clean(title)}</title>',
        f'<path class="line" d="{_path(line)}"/>',
        f'<path class="tip" d="M{end.x - 4:.1f} {end.bottom - 8:.1f}h8l-4 8z"/>',
    ]
    if label is not None:
        x, y = label.x, label.top
        parts.append(
            f'<rect class="behind" x="{x - label.width / 2:.1f}" y="{y:.1f}" width="{label.width:.1f}" '
            f'height="{label.height:.1f}"/>'
        )
        texts = [stitch.text for stitch in link.stitches if stitch.text]
        for index, text in enumerate(texts):
            parts.append(f'<text class="port" x="{x:.1f}" y="{y + 12 + 14 * index:.1f}">{clean(_short(text))}</text>')
    return "".join([*parts, "</g>"])


def _path(line: list[Pass]) -> str:
    """Straight down through layers, a curve from one to the next that begins and ends downwards."""
    x, _, bottom = line[0]
    path = f"M{x:.1f} {line[0].top:.1f}V{bottom:.1f}"
    for here in line[1:]:
        middle = (bottom + here.top) / 2
        path += f"C{x:.1f} {middle:.1f} {here.x:.1f} {middle:.1f} {here.x:.1f} {here.top:.1f}"
        x, _, bottom = here
        # The last few pixels are the tip's: a line under it would make it blunt.
        path += f"V{bottom - (6 if here is line[-1] else 0):.1f}"
    return path


def _box(box: Box, at: Place, lines: list[tuple[str, str]], hot: tuple[float, str] | None, outlined: bool) -> str:
    kinds = f"box {box.shape}"
    if hot is not None and box.shape != "caller":
        kinds += f" heat-{step(hot[0])}"
    if outlined:
        kinds += " outlined"
    title = ", ".join(filter(None, (box.node, box.below, hot[1] if hot else "")))
    node = "" if box.shape == "caller" else f' data-node="{clean(box.node)}"'
    parts = [f'<g class="{kinds}"{node}><title>{clean(title)}</title>{_form(box, at)}']
    y = at.top + at.height / 2 - LINE * len(lines) / 2 + 12
    for index, (kind, text) in enumerate(lines):
        parts.append(f'<text class="{kind}" x="{at.x:.1f}" y="{y + LINE * index:.1f}">{clean(text)}</text>')
    return "".join([*parts, "</g>"])


def _form(box: Box, at: Place) -> str:
    x, y, width, height = at.x - at.width / 2, at.top, at.width, at.height
    if box.shape == "constant":  # a note: its corner is folded
        return (
            f'<path class="form" d="M{x:.1f} {y:.1f}h{width - 10:.1f}l10 10v{height - 10:.1f}h{-width:.1f}z'
            f'm{width - 10:.1f} 0v10h10"/>'
        )
    corner = {"module": 2.0, "other": 2.0, "function": 12.0}.get(box.shape, height / 2)
    rect = f'<rect class="form" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{corner:.1f}"/>'
    if box.shape == "other":  # a second line on either side, as for a subroutine
        rect += f'<path class="form" d="M{x + 5:.1f} {y:.1f}v{height:.1f}m{width - 10:.1f} 0v{-height:.1f}"/>'
    return rect


def _caption(caption: str, scale: bool, y: float) -> str:
    parts = ['<g class="caption">']
    if scale:
        for index in range(COLD_TO_HOT):
            parts.append(
                f'<g class="box heat-{index}"><rect class="form" x="{16 + 16 * index}" y="{y:.1f}" width="16" height="12"/></g>'
            )
    x = 16 + (COLD_TO_HOT * 16 + 10 if scale else 0)
    return "".join([*parts, f'<text class="note" x="{x}" y="{y + 10:.1f}">{clean(caption)}</text></g>'])


def _style(heat: bool) -> str:
    rules = [
        "text{font-family:system-ui,-apple-system,'Segoe UI',sans-serif;text-anchor:middle}",
        f".name{{font-size:{NAME}px;font-weight:600}}",
        f".what,.heat{{font-size:{SMALL + 1}px}}",
        ".heat{font-weight:600;font-variant-numeric:tabular-nums}",
        f".port{{font:{SMALL}px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace}}",
        f".note{{font-size:{SMALL}px;text-anchor:start}}",
        ".line{fill:none;stroke-width:1.3}",
        ".form{stroke-width:1.3}",
        ".remote .form{stroke-dasharray:5 3}",
        ".link:hover .line{stroke-width:2.6}",
        ".outlined .form{stroke-width:3.2}",
    ]
    dark = _scoped(_colours(_DARK, 1, heat))
    return _scoped([*rules, *_colours(_LIGHT, 0, heat)]) + f"@media(prefers-color-scheme:dark){{{dark}}}"


def _scoped(rules: list[str]) -> str:
    """Rules that hold inside the picture only."""
    scoped = []
    for rule in rules:
        selectors, _, body = rule.partition("{")
        scoped.append(",".join(f".weave-graph {selector}" for selector in selectors.split(",")) + "{" + body)
    return "".join(scoped)


def _colours(colours: dict[str, str], theme: int, heat: bool) -> list[str]:
    rules = [
        f".canvas,.behind{{fill:{colours['canvas']}}}",
        f"text{{fill:{colours['ink']}}}",
        f".what,.port,.note{{fill:{colours['soft']}}}",
        f".line{{stroke:{colours['line']}}}",
        f".tip{{fill:{colours['line']}}}",
        f".link:hover .line{{stroke:{colours['touched']}}}",
        f".link:hover .tip,.link:hover .port{{fill:{colours['touched']}}}",
    ]
    rules += [f".{kind} .form{{fill:{colours[kind]};stroke:{edge[theme]}}}" for kind, edge in _EDGES.items()]
    if heat:
        for index, (fill, text) in enumerate(palette(dark=bool(theme))):
            rules.append(f".heat-{index} .form{{fill:{written(fill)};stroke:{colours['line']}}}")
            rules.append(f".heat-{index} text{{fill:{written(text)}}}")
    rules.append(f".outlined .form{{stroke:{colours['ink']}}}")
    return rules
