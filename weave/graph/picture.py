"""What a picture of a graph shows, whoever draws it: boxes, links between them, colours.

All stitches from one box to another are one *link*, with a line of text for each: five overrides of one module by another
would else be five lines side by side. The caller is two boxes, one above and one below, so that the picture has no loop.

*Heat* colours boxes by a number: a share of the greatest, 0 to 1, and the text that says the number itself, because
colour can't be the only sign. What the number is (a time, bytes) is the caller's to know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

from weave.graph.descriptors import IODescriptor, port_text
from weave.graph.plan import Plan
from weave.graph.render import link_label, what
from weave.graph.targets import ConstantTarget, FunctionTarget, ModuleTarget, RemoteTarget, Target

Shape: TypeAlias = Literal["module", "function", "constant", "other", "remote", "caller"]
Heat: TypeAlias = Mapping[str, tuple[float, str]]  # by node: how hot, 0 to 1; the number as text

COLD_TO_HOT = 8
Colour: TypeAlias = tuple[int, int, int]

# Lightness alone tells cold from hot, so these are safe for colour-blind eyes and on a black-and-white printer. Hot is
# what stands out from the page: dark on a light one, bright on a dark one. The middle is Okabe and Ito's orange, the
# bright end their yellow.
_LIGHT: tuple[Colour, Colour, Colour] = ((255, 247, 230), (230, 159, 0), (140, 50, 0))
_DARK: tuple[Colour, Colour, Colour] = ((44, 47, 54), (150, 80, 0), (240, 228, 66))


class Box(NamedTuple):
    """A unit, or the caller. `what` is empty where the node's id says it already; `rank`: which computes it, if several do."""

    node: str
    what: str
    shape: Shape
    rank: int | None = None

    @property
    def below(self) -> str:
        """The line below the node's id."""
        return " · ".join(text for text in (self.what, "" if self.rank is None else f"rank {self.rank}") if text)


class Stitch(NamedTuple):
    """A stitch in a link: `text` names the ports that have names (it may be empty), `title` says all of it."""

    slot: int
    text: str
    title: str


class Link(NamedTuple):
    """Everything that goes from one box to another; places of boxes."""

    source: int
    destination: int
    stitches: tuple[Stitch, ...]


class Picture(NamedTuple):
    """Boxes (the plan's units first, in their order) and links. `given` and `taken`: the caller's boxes, or -1."""

    boxes: tuple[Box, ...]
    links: tuple[Link, ...]
    given: int
    taken: int


def picture_of(plan: Plan, ranks: Mapping[str, int] = {}) -> Picture:
    """What there is to draw of a plan. `ranks`: by node, the rank that computes it."""
    boxes = [
        Box(
            unit.node,
            "" if is_remote(unit.target) else what(unit.target),
            shape(unit.target),
            ranks.get(unit.node),
        )
        for unit in plan.units
    ]
    given = taken = -1
    if plan.given:
        given = len(boxes)
        boxes.append(Box("caller", "", "caller"))
    if plan.taken:
        taken = len(boxes)
        boxes.append(Box("caller", "", "caller"))
    links: dict[tuple[int, int], list[Stitch]] = {}
    for edge in plan.edges:
        producer, consumer = plan.producers[edge.slot], plan.consumers[edge.slot]
        source, destination = edge.stitch.source_descriptor, edge.port
        title = f"{_title(plan, source)} → {_title(plan, destination)}"
        place = (given if producer < 0 else producer, taken if consumer < 0 else consumer)
        links.setdefault(place, []).append(Stitch(edge.slot, link_label(source, destination), title))
    return Picture(
        tuple(boxes), tuple(Link(*place, tuple(stitches)) for place, stitches in links.items()), given, taken
    )


def is_remote(target: Target) -> bool:
    """Whether a target is other ranks."""
    return isinstance(target, RemoteTarget)


def shape(target: Target) -> Shape:
    """How a target's box is drawn. A plugin's kinds of target are all "other"."""
    if isinstance(target, ModuleTarget):
        return "module"
    if isinstance(target, FunctionTarget):
        return "function"
    if isinstance(target, ConstantTarget):
        return "constant"
    return "remote" if is_remote(target) else "other"


def _title(plan: Plan, port: IODescriptor) -> str:
    return port_text(port, plan.nodes[port.target])


def step(share: float) -> int:
    """Which of the colours from cold to hot. Anything that is no share is taken for the nearest one."""
    return min(COLD_TO_HOT - 1, max(0, int(share * COLD_TO_HOT))) if share == share else 0


def palette(dark: bool = False) -> list[tuple[Colour, Colour]]:
    """From cold to hot: the colour of a box, and that of the text on it."""
    low, middle, high = _DARK if dark else _LIGHT
    fills = []
    for index in range(COLD_TO_HOT):
        way = 2 * index / (COLD_TO_HOT - 1)
        one, other = (low, middle) if way <= 1 else (middle, high)
        part = way if way <= 1 else way - 1
        red, green, blue = (round(a + (b - a) * part) for a, b in zip(one, other, strict=True))
        fills.append((red, green, blue))
    black, white = (20, 20, 20), (255, 255, 255)
    return [(fill, max(black, white, key=lambda text: contrast(text, fill))) for fill in fills]


def contrast(one: Colour, other: Colour) -> float:
    """How well two colours are told apart, 1 to 21, as WCAG 2 defines it. Text wants 4.5."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: Colour) -> float:
    parts = [c / 255 for c in colour]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def written(colour: Colour) -> str:
    """`#rrggbb`."""
    return "#{:02x}{:02x}{:02x}".format(*colour)
