"""Pictures of graphs: what is in them, that nothing covers anything else, and that no name can break them."""

from __future__ import annotations

import itertools
import pickle
import re
import sys
from collections import Counter
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.small import EXT, Tiny, knot, module, plus_one
from weave import ConstantTarget, FunctionTarget, Plan, RemoteTarget
from weave.graph import layout, notebook, picture
from weave.graph.dot import dot
from weave.graph.layout import Layout, Place, laid_out, ranks_of
from weave.graph.picture import contrast, palette, picture_of, step
from weave.graph.render import mermaid
from weave.graph.svg import svg, text_width

SVG = "{http://www.w3.org/2000/svg}"
AWKWARD = ['say "hi" & <b>', "two\nlines", "back\\", "-->", "a\0b\x1bc", "日本", "]]>", "'", "é" * 60, "end", "\ud800"]


def example() -> Plan:
    m, f, remote = module(Tiny(), "teacher"), FunctionTarget("loss", plus_one), RemoteTarget(1)
    return knot(
        (EXT.input("x"), m.input("")),
        (m.output("a"), f.input(adapter="first")),
        (m.output("b"), f.input()),
        (ConstantTarget("scale", 2).output(), f.input(reducer="sum")),
        (f.output(), EXT.output("y")),
        (m.output("b", call="all"), remote.value("h")),
    ).plan


def named(*names: str) -> Plan:
    targets = [FunctionTarget(name, plus_one) for name in names]
    return knot(*[(t.output(), EXT.output(t.name)) for t in targets]).plan


def groups(root: ElementTree.Element, kind: str) -> list[ElementTree.Element]:
    return [g for g in root.iter(f"{SVG}g") if kind in g.get("class", "").split()]


def boxes(root: ElementTree.Element) -> dict[str, ElementTree.Element]:
    found = {g.get("data-node", ""): g for g in groups(root, "box") if g.get("data-node") is not None}
    assert len(found) == sum(g.get("data-node") is not None for g in groups(root, "box"))
    return found


def words(group: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in group.iter(f"{SVG}text")]


# --- SVG ---


def test_every_node_and_every_stitch_is_in_it_once() -> None:
    plan = example()
    root = ElementTree.fromstring(plan.to_svg())
    assert sorted(boxes(root)) == sorted(unit.node for unit in plan.units)
    slots = [int(slot) for g in groups(root, "link") for slot in g.get("data-stitches", "").split()]
    assert sorted(slots) == list(range(len(plan.edges)))
    assert len(groups(root, "caller")) == 2


def test_it_says_what_things_are() -> None:
    root = ElementTree.fromstring(example().to_svg())
    found = boxes(root)
    kinds = {node: box.get("class", "").split()[1] for node, box in found.items()}
    assert kinds == {
        "teacher": "module",
        "scale": "constant",
        "loss": "function",
        "remote[1].send('h')": "remote",
    }
    assert words(found["teacher"]) == ["teacher", "module Tiny"]
    assert re.search(r"\.remote \.form\{stroke-dasharray", example().to_svg())
    # The two stitches from teacher to loss are one line with two labels, and its title has both in full.
    both = next(g for g in groups(root, "link") if len(g.get("data-stitches", "").split()) == 2)
    assert words(both) == ["out a", "out b"]
    title = both.findtext(f"{SVG}title")
    assert title == "teacher.output('a') → loss.input()\nteacher.output('b') → loss.input()"


def test_it_needs_nothing_else_and_disturbs_nothing_else() -> None:
    text = example().to_svg()
    assert not re.search(r"<script|href|url\(|@import|\bid=", text)
    style = re.search(r"<style>(.*)</style>", text)
    assert style
    rules = style[1].replace("@media(prefers-color-scheme:dark){", "").replace("}}", "}")
    for rule in rules.split("}"):
        assert all(part.startswith(".weave-graph ") for part in rule.partition("{")[0].split(",") if rule)
    assert "prefers-color-scheme:dark" in text


def test_the_same_graph_gives_the_same_picture() -> None:
    assert example().to_svg() == example().to_svg()


@pytest.mark.parametrize("name", AWKWARD)
def test_no_name_breaks_it(name: str) -> None:
    root = ElementTree.fromstring(named(name, "other").to_svg())
    assert len(boxes(root)) == 2
    shown = next(words(box)[0] for node, box in boxes(root).items() if node != "other")
    assert "\n" not in shown
    if len(name) < 40 and name.isprintable():
        assert shown == name
    caption = svg(picture_of(named("f")), {"f": (1.0, name)}, caption=name)
    assert ElementTree.fromstring(caption) is not None


def test_long_names_are_cut_and_are_whole_in_the_title() -> None:
    name = "x" * 200
    box = boxes(ElementTree.fromstring(named(name).to_svg()))[name]
    assert len(words(box)[0]) < 50
    assert name in (box.findtext(f"{SVG}title") or "")


def test_text_that_is_not_latin_takes_room() -> None:
    assert text_width("日本語", 10) > text_width("abc", 10) * 1.5
    assert text_width("e\u0301", 10) == text_width("e", 10)


# --- heat ---


def test_heat_is_colour_and_number_and_the_outline_an_edge() -> None:
    heat = {"teacher": (1.0, "12.0 ms"), "loss": (0.0, "20 µs")}
    text = svg(picture_of(example()), heat, {"teacher"}, "mean <time>")
    found = boxes(ElementTree.fromstring(text))
    assert found["teacher"].get("class") == "box module heat-7 outlined"
    assert found["loss"].get("class") == "box function heat-0"
    assert found["scale"].get("class") == "box constant"
    assert words(found["teacher"])[-1] == "12.0 ms"
    assert "mean &lt;time&gt;" in text


def test_a_node_called_caller_is_not_the_caller() -> None:
    root = ElementTree.fromstring(svg(picture_of(named("caller")), {"caller": (1.0, "1 ms")}, {"caller"}))
    assert boxes(root)["caller"].get("class") == "box function heat-7 outlined"
    assert [g.get("class") for g in groups(root, "caller")] == ["box caller"]
    assert all("1 ms" not in words(g) for g in groups(root, "caller"))


@pytest.mark.parametrize("dark", [False, True])
def test_colours_can_be_read_and_told_apart_by_lightness_alone(dark: bool) -> None:
    colours = palette(dark)
    assert len(colours) == picture.COLD_TO_HOT
    assert min(contrast(fill, text) for fill, text in colours) >= 4.5
    page = (20, 23, 28) if dark else (255, 255, 255)
    from_page = [contrast(fill, page) for fill, _ in colours]
    assert all(hot > cold * 1.1 for cold, hot in itertools.pairwise(from_page))


def test_steps() -> None:
    assert [step(x) for x in (0.0, 0.124, 0.126, 0.99, 1.0)] == [0, 0, 1, 7, 7]
    assert [step(x) for x in (-1.0, 2.0, float("nan"))] == [0, 7, 0]


def test_mermaid_with_heat() -> None:
    lines = mermaid(example(), {"teacher": (1.0, "12.0 ms")}, {"loss"}).splitlines()
    assert '    n0["teacher<br/><i>module Tiny</i><br/><b>12.0 ms</b>"]' in lines
    assert "    style n0 fill:#8c3200,color:#ffffff" in lines
    assert "    style n3 stroke-width:4px" in lines


# --- DOT ---

STRING = r'"(?:[^"\\]|\\.)*"'
ATTRIBUTES = rf"\[(?:\w+=(?:{STRING}|\w+) ?)*\]"
LINE = re.compile(rf"    (?:n\d+(?: -> n\d+)?|node|edge) {ATTRIBUTES}|    label={STRING}(?: \w+=(?:{STRING}|\w+))*")


def lines_of(text: str) -> list[str]:
    """The lines between the braces, each of them a statement of its own."""
    first, *lines, last = text.splitlines()
    assert (first, last) == ("digraph weave {", "}")
    assert not [line for line in lines if not LINE.fullmatch(line)]
    return [line.strip() for line in lines]


def test_dot_has_every_node_and_every_stitch() -> None:
    plan = example()
    lines = lines_of(plan.to_dot())
    nodes = [line for line in lines if re.match(r"n\d+ \[", line)]
    assert len(nodes) == len(plan.units) + 2
    arrows = Counter(line.partition(" [")[0] for line in lines if "->" in line and line.startswith("n"))
    assert sum(arrows.values()) == len(plan.edges)
    assert sorted(arrows.values()) == [1, 1, 1, 1, 2]
    assert [line for line in nodes if "remote" in line] == [line for line in nodes if "dashed" in line] != []
    assert '"teacher\\nmodule Tiny"' in nodes[0]


@pytest.mark.parametrize("name", AWKWARD)
def test_no_name_breaks_dot(name: str) -> None:
    text = dot(picture_of(named(name)), {name: (0.5, name)}, {name}, caption=name)
    assert len([line for line in lines_of(text) if line.startswith("n") and "caller" in line]) == 1


def test_dot_with_heat() -> None:
    lines = lines_of(dot(picture_of(example()), {"teacher": (1.0, "12.0 ms")}, {"teacher"}, "mean"))
    line = next(line for line in lines if "teacher" in line)
    assert 'fillcolor="#8c3200" fontcolor="#ffffff" penwidth=4' in line
    assert "12.0 ms" in line
    assert not any("penwidth" in line for line in lines if "teacher" not in line)


# --- layout ---


@st.composite
def dags(draw: st.DrawFn) -> tuple[list[Any], list[tuple[int, int]], list[Any], int, int]:
    """Sizes, links, labels, and the caller's two boxes (or -1), which come last."""
    count = draw(st.integers(1, 14))
    pairs = [(a, b) for b in range(count) for a in range(b)]
    links = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=30)) if pairs else []
    first = last = -1
    total = count
    for which in ("first", "last"):
        if draw(st.booleans()):
            ends = draw(st.lists(st.integers(0, count - 1), unique=True, min_size=1))
            if which == "first":
                first, links = total, [*links, *((total, end) for end in ends)]
            else:
                last, links = total, [*links, *((end, total) for end in ends)]
            total += 1
    if first >= 0 and last >= 0 and draw(st.booleans()):
        links.append((first, last))
    size = st.tuples(st.floats(20, 300), st.floats(10, 60))
    sizes = draw(st.lists(size, min_size=total, max_size=total))
    labels = draw(st.lists(st.none() | size, min_size=len(links), max_size=len(links)))
    return sizes, links, labels, first, last


def apart(one: Place, other: Place) -> bool:
    across = abs(one.x - other.x) >= (one.width + other.width) / 2
    return across or one.top >= other.top + other.height or other.top >= one.top + one.height


def drawn(graph: Any) -> Layout:
    sizes, links, labels, first, last = graph
    return laid_out(sizes, links, labels, ranks_of(len(sizes), links, first, last))


@settings(max_examples=150, deadline=None)
@given(dags())
def test_nothing_covers_anything(graph: Any) -> None:
    sizes, links, labels, first, last = graph
    at = drawn(graph)
    assert [(p.width, p.height) for p in at.boxes] == sizes
    assert [p and (p.width, p.height) for p in at.labels] == labels
    places = [*at.boxes, *(p for p in at.labels if p)]
    for i, one in enumerate(places):
        assert one.x - one.width / 2 >= 0
        assert one.x + one.width / 2 <= at.width
        assert 0 <= one.top <= one.top + one.height <= at.height
        assert all(apart(one, other) for other in places[:i])
    for (source, destination), line, label in zip(links, at.lines, at.labels, strict=True):
        start, end = at.boxes[source], at.boxes[destination]
        assert start.top + start.height < end.top, "every line goes down"
        assert line[0].top == start.top + start.height
        assert line[-1].bottom == end.top
        assert abs(line[0].x - start.x) <= start.width / 2
        assert abs(line[-1].x - end.x) <= end.width / 2
        assert all(one.bottom <= other.top for one, other in itertools.pairwise(line))
        if label:
            assert any(here.x == label.x and here.top <= label.top <= here.bottom for here in line)
        # Through a layer a line goes straight down, and it meets nothing there but its own label and ends.
        strangers = [p for p in places if p is not start and p is not end and p is not label]
        for here in line:
            column = Place(here.x, here.top, 1.0, here.bottom - here.top)
            assert all(apart(column, other) for other in strangers)
    if first >= 0:
        assert all(at.boxes[first].top <= box.top for box in at.boxes)
    if last >= 0:
        assert all(at.boxes[last].top >= box.top for box in at.boxes)


def test_what_needs_nothing_stands_above_what_it_feeds() -> None:
    chain = [(0, 1), (1, 2), (2, 3), (4, 3)]
    assert ranks_of(5, chain) == [0, 1, 2, 3, 2]


def test_a_parent_stands_in_the_middle_of_its_children() -> None:
    at = laid_out(
        [(100, 20), (80, 20), (80, 20), (100, 20)], [(0, 1), (0, 2), (1, 3), (2, 3)], [None] * 4, [0, 1, 1, 2]
    )
    assert at.boxes[0].x == at.boxes[3].x == pytest.approx((at.boxes[1].x + at.boxes[2].x) / 2)


def test_an_empty_picture() -> None:
    assert laid_out([], [], [], []).boxes == []
    assert knot((EXT.input("x"), EXT.output("y"))).plan.to_svg().count('class="box caller"') == 2


def test_a_wide_graph() -> None:
    functions = [FunctionTarget(f"f{i}", plus_one) for i in range(1000)]
    plan = knot(
        *[(EXT.input("x"), f.input()) for f in functions], *[(f.output(), EXT.output(f.name)) for f in functions]
    ).plan
    root = ElementTree.fromstring(plan.to_svg())
    assert len(boxes(root)) == 1000
    assert not [g for g in groups(root, "link") if words(g)], "so many labels nobody reads: they are in the titles"


def test_too_large_says_what_has_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "MOST", 3)
    with pytest.raises(ValueError, match=r"6 boxes.*up to 3.*DOT and Mermaid"):
        example().to_svg()
    assert example().to_dot()


def test_without_igraph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "igraph", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'weave-dataflow\[pictures\]'") as caught:
        example().to_svg()
    assert caught.value.name == "igraph"
    assert example().to_dot().startswith("digraph")
    html = example()._repr_html_()
    assert html.startswith("<pre>4 units, 6 stitches")


# --- notebooks ---


def test_a_notebook_shows_the_picture_of_a_small_graph() -> None:
    stitched = knot((EXT.input("x"), module(Tiny()).input("")))
    for thing in (stitched, stitched.plan, pickle.loads(pickle.dumps(stitched))):
        html = thing._repr_html_()
        assert "<svg" in html
        assert ElementTree.fromstring(html) is not None


def test_a_notebook_shows_the_text_of_a_large_one_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "MOST", 1)
    html = named("<script>", "b")._repr_html_()
    assert html.startswith("<pre>2 units")
    assert "&lt;script&gt;: function plus_one" in html
    assert "<script>" not in html


def test_a_notebook_is_never_shown_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("no picture today")

    monkeypatch.setattr(notebook, "svg", broken)
    assert example()._repr_html_().startswith("<pre>4 units")
    monkeypatch.setattr(Plan, "__str__", broken)
    assert example()._repr_html_() == "<pre>&lt;Plan: 4 units, 6 stitches&gt;</pre>"
