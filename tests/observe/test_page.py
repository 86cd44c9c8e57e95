"""The page's file, and what it is told of a trace. What a browser makes of it: `test_page_browser.py`."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
from html.parser import HTMLParser
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.observe.page_samples import broken, diamond, graph, node, ranks, simulated, trace
from weave.errors import TraceException
from weave.observe.page import layout, render_page, write_page
from weave.observe.page.content import content
from weave.observe.trace import RunTrace, Trace

WICKED = "</script><img src=x onerror=alert(1)><!--<script>"


class Elements(HTMLParser):
    """What a page consists of: its elements, and the text of those that it would run or read."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.texts.append("")
        self.inside = True

    def handle_endtag(self, tag: str) -> None:
        self.inside = False

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.texts[-1] += data

    def only(self, tag: str, **attributes: str) -> str:
        """The text of the one element with these attributes, and no attribute named in the tag but not here."""
        [text] = [
            text
            for (name, has), text in zip(self.tags, self.texts, strict=True)
            if name == tag and (attributes.items() <= has.items() if attributes else not has)
        ]
        return text


def parsed(page: str) -> Elements:
    elements = Elements()
    elements.feed(page)
    elements.close()
    return elements


def embedded(page: str) -> Any:
    return json.loads(parsed(page).only("script", id="data"))


# --------------------------------------------------------------------------------------------- one file, by itself


def test_it_has_its_data_and_two_scripts_and_loads_nothing() -> None:
    elements = parsed(render_page(trace(diamond())))
    assert [tag for tag, _ in elements.tags].count("script") == 2
    for tag, attributes in elements.tags:
        assert not {"src", "srcset", "action", "poster"} & set(attributes), tag
        assert attributes.get("href", "data:,") == "data:,"
        assert not [name for name in attributes if name.startswith("on") or name == "style"], tag
    assert "url(" not in elements.only("style")
    assert "@import" not in elements.only("style")
    assert not re.search(r"fetch\(|XMLHttp|WebSocket|EventSource|sendBeacon|import\(|https?:", elements.only("script"))
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", elements.only("script"))


def test_its_policy_allows_its_own_script_and_style_and_nothing_else() -> None:
    elements = parsed(render_page(trace(diamond())))
    [policy] = [attributes["content"] for tag, attributes in elements.tags if "http-equiv" in attributes]
    assert policy
    allowed = dict(part.split(" ", 1) for part in policy.split("; "))
    digests = {
        f"{kind}-src": f"'sha256-{base64.b64encode(hashlib.sha256(elements.only(kind).encode()).digest()).decode()}'"
        for kind in ("script", "style")
    }
    assert allowed == {
        **digests, "default-src": "'none'", "img-src": "data:", "base-uri": "'none'", "form-action": "'none'"
    }  # fmt: skip


@given(st.text(min_size=1), st.text())
def test_no_name_becomes_markup(name: str, program: str) -> None:
    page = render_page(trace(diamond(names=("tokens", name + "t", WICKED, "loss")), program=WICKED + program))
    elements = parsed(page)
    plain = parsed(render_page(trace(diamond())))
    assert [tag for tag, _ in elements.tags] == [tag for tag, _ in plain.tags]
    assert elements.only("script") == plain.only("script")
    told = embedded(page)
    assert {name + "t", WICKED} <= set(told["texts"])
    assert told["program"] == WICKED + program


def test_a_name_that_is_no_unicode_can_be_written(tmp_path: Path) -> None:
    path = write_page(trace(diamond(names=("a", "b\udc80", "c\u2028", "d\0"))), tmp_path / "run.html")
    assert {"b\udc80", "c\u2028", "d\0"} <= set(embedded(path.read_text(encoding="utf-8"))["texts"])


def test_every_colour_that_the_canvases_use_is_in_the_style() -> None:
    elements = parsed(render_page(trace(diamond())))
    [names] = re.findall(r"const INKS = \[(.*?)\]", elements.only("script"), re.DOTALL)
    light = elements.only("style").split(":root[", 1)[0]
    inks = re.findall(r'"(\w+)"', names)
    assert len(inks) > 10
    assert [name for name in inks if f"--{name}: #" not in light] == []
    assert set(re.findall(r"\bink\.(\w+)", elements.only("script"))) <= {*inks, "hatch", "back_hatch"}


def test_what_is_written_is_what_is_rendered(tmp_path: Path) -> None:
    path = write_page(ranks(), str(tmp_path / "run.html"))
    assert path == tmp_path / "run.html"
    assert path.read_bytes() == render_page(ranks()).encode()


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceException, match=r"run\.html can't be written: No such file"):
        write_page(trace(diamond()), tmp_path / "absent" / "run.html")


def test_a_node_costs_less_than_400_bytes_with_its_stitches() -> None:
    some, more = (len(render_page(trace(simulated(count, 4)))) for count in (500, 3000))
    assert more - some < 400 * 2500
    assert some - 400 * 500 < 120_000


# --------------------------------------------------------------------------------------------- what it is told


def spans(told: dict[str, Any], place: int) -> list[tuple[int, int, int]]:
    """`(lane, begin, end)` of all that a run's lanes show."""
    run = told["runs"][place]
    nodes = [(lane, begin, end) for _, lane, _, _, _, _, begin, end, *_ in run["nodes"]]
    ways = [(lane, begin, end) for lane, _, _, _, _, _, begin, end, *_ in run["transfers"]]
    return [
        (lane, begin, run["took"] if end is None else end) for lane, begin, end in nodes + ways if begin is not None
    ]


times = st.tuples(st.integers(0, 30), st.integers(0, 8), st.integers(0, 20))
fired = st.tuples(
    times, st.sampled_from(["MainThread", "worker 1"]), st.booleans(), st.sampled_from(["ok", "cancelled"])
)


@given(st.lists(fired, min_size=1, max_size=25))
def test_no_two_on_one_lane_overlap(firings: list[Any]) -> None:
    run = RunTrace(
        "f" * 12, None, graph([(f"n{i}", "function f") for i in range(len(firings))], []), "tasks", 0, None, "ok"
    )
    for unit, ((ready, waits, took), thread, awaited, status) in enumerate(firings):
        begin = ready + waits
        run.nodes[unit] = node(
            unit, f"n{unit}", ready, begin, begin + took, thread=thread, awaited=awaited, status=status
        )
    told = content(trace(run))
    drawn = spans(told, 0)
    assert len(drawn) == len(firings)
    for (lane, begin, end), (other, from_, to) in combinations(drawn, 2):
        assert lane != other or not (begin < to and from_ < end)
    names = told["runs"][0]["lanes"]
    for unit, (_, thread, awaited, status) in enumerate(firings):
        expected = f"{thread} · awaited" if awaited or status == "cancelled" else thread
        assert names[told["runs"][0]["nodes"][unit][1]] == expected


def test_a_run_with_an_end_missing_is_shown_as_far_as_it_is_known() -> None:
    run = diamond()
    run.status, run.finished_ns = "unfinished", None
    run.nodes[3].finished_ns = run.nodes[2].finished_ns = None
    run.nodes[3].status = run.nodes[2].status = "unfinished"
    run.nodes[3].started_ns = None
    told = content(trace(run, cut=["run.jsonl"]))
    shown = told["runs"][0]
    assert shown["took"] == 800_000
    lanes = [row[1] for row in shown["nodes"]]
    assert lanes[3] == -1
    assert min(lanes[:3]) >= 0
    assert told["cut"] == ["run.jsonl"]


def test_runs_that_sent_each_other_values_are_one_view_and_all_runs_the_last() -> None:
    told = content(ranks())
    place = {run["run"]: i for i, run in enumerate(told["runs"])}
    zero, one, alone = place["0" * 12], place["1" * 12], place["abcdefabcdef"]
    assert told["pairs"] == [[zero, 0, one, 0]]
    assert sorted(told["views"][:-1]) == sorted([[zero, one], [alone]])
    assert sorted(told["views"][-1]) == [0, 1, 2]


def test_one_run_on_several_ranks_is_one_view() -> None:
    both = [diamond(), diamond()]
    both[0].rank, both[1].rank = 1, 0
    assert content(Trace([{}], both))["views"] == [[1, 0]]


def test_a_trace_without_runs_has_a_page() -> None:
    assert embedded(render_page(Trace([{}], [])))["views"] == []


def test_errors_are_told() -> None:
    told = content(trace(broken()))
    assert told["runs"][0]["error"] == "NodeException: node 'teacher' failed: ValueError: the batch is empty"
    assert "ValueError: the batch is empty" in told["texts"]


# --------------------------------------------------------------------------------------------- the graph's layout


@pytest.fixture(params=["igraph", "without"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "without":
        monkeypatch.setitem(sys.modules, "igraph", None)  # an import of it raises
    else:
        pytest.importorskip("igraph", reason="an optional extra: pip install igraph")


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("shape", [(60, 12), (400, 400), (1, 1)])
def test_boxes_stand_apart_and_values_go_down(shape: tuple[int, int]) -> None:
    count, near = shape
    known = simulated(count, 2, near=near, seed=5).graph
    placed = layout.places(known)
    rows: dict[int, list[int]] = {}
    for column, row in placed:
        rows.setdefault(row, []).append(column)
    assert min(column for column, _ in placed) == 0
    for columns in rows.values():
        columns.sort()
        assert all(b - a >= 2 for a, b in pairwise(columns))
    for stitch in known.stitches:
        if stitch.producer >= 0 and stitch.consumer >= 0:
            assert placed[stitch.producer][1] < placed[stitch.consumer][1]


@pytest.mark.usefixtures("library")
def test_a_layer_of_thousands_is_folded() -> None:
    names = [(f"n{i}", "function f") for i in range(2002)]
    fan = graph(names, [(0, i) for i in range(1, 2001)] + [(i, 2001) for i in range(1, 2001)])
    placed = layout.places(fan)
    assert len(set(placed)) == len(placed)
    assert max(column for column, _ in placed) < 2 * 3 * 45
    assert max(row for _, row in placed) > 10


def test_a_diamond_is_drawn_as_one() -> None:
    assert [row for _, row in layout.places(diamond().graph)] == [0, 1, 1, 2]


def test_a_graph_without_nodes_has_a_layout() -> None:
    assert layout.places(graph([], [])) == []
