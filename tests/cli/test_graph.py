"""`weave graph module:attribute`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from weave.cli import main

GRAPHS = """
from torch import nn
from weave import ExternalTarget, FunctionTarget, Needle

print("hello from the user's own file")

def double(x):
    return 2 * x

def needle():
    print("made")
    caller, a, b = ExternalTarget(), FunctionTarget("a", double), FunctionTarget("b", double)
    return (
        Needle()
        .stitch(caller.input("x"), a.input())
        .stitch(a.output(), b.input())
        .stitch(b.output(), caller.output("y"))
    )

def make():
    return needle().knot()

def bad():
    f, g = FunctionTarget("f", double), FunctionTarget("g", double)
    return Needle().stitch(f.output(), g.input())

def needs(width):
    return make()

class Job:
    def __init__(self):
        self.stitched = make()

class Called(nn.Linear):
    def __init__(self):
        super().__init__(1, 1)

    def forward(self, *args):
        raise AssertionError("a module is not to be called")

def placed():
    sewn = needle()
    a, b = [target for target in sewn.nodes if getattr(target, "name", "") in ("a", "b")]
    return sewn.place(a, 0).place(b, 1)

stitched, linear, number = make(), Called(), 3
"""


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the user stands, with a module of graphs."""
    (tmp_path / "some_graphs.py").write_text(GRAPHS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("some_graphs", None)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["graph", *arguments])
    said = capsys.readouterr()
    return status, said.out, said.err


TEXT = """\
2 units, 3 stitches
  a: function double
    a.input() <- external.input('x')
  b: function double
    b.input() <- a.output()
  to the caller:
    external.output('y') <- b.output()
"""


@pytest.mark.parametrize("name", ["stitched", "make", "needle"])
def test_text_of_whatever_is_a_graph(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, f"some_graphs:{name}")
    assert (status, out) == (0, TEXT)
    assert "hello from the user's own file" in err, "what the user's module prints is no part of the picture"


def test_formats(capsys: pytest.CaptureFixture[str]) -> None:
    shown = {form: run(capsys, "some_graphs:make", "--format", form)[1] for form in ("text", "mermaid", "dot", "svg")}
    assert shown["text"] == TEXT
    assert shown["mermaid"].startswith("flowchart TD\n")
    assert shown["dot"].startswith("digraph weave {\n")
    assert ElementTree.fromstring(shown["svg"]).tag.endswith("svg")
    assert len(json.loads(run(capsys, "some_graphs:make", "--json")[1])["stitches"]) == 3


@pytest.mark.parametrize(
    ("file", "begins"),
    [
        ("g.txt", "2 units"), ("g.mmd", "flowchart"), ("g.mermaid", "flowchart"), ("g.dot", "digraph"),
        ("g.gv", "digraph"), ("g.SVG", "<svg"), ("g.json", "{"),
    ],
)  # fmt: skip
def test_the_suffix_says_the_format(
    file: str, begins: str, directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = run(capsys, "some_graphs:make", "-o", file)
    assert (status, out) == (0, "")
    assert (directory / file).read_text(encoding="utf-8").startswith(begins)


def test_a_format_that_is_said_wins_over_the_suffix(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "some_graphs:make", "-o", "g.md", "--format", "mermaid")[0] == 0
    assert (directory / "g.md").read_text().startswith("flowchart")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["some_graphs"], "not of the form module:attribute, such as"),
        (["no_such_graphs:x"], "can't import 'no_such_graphs'"),
        (["some_graphs:nothing"], "has no 'nothing'"),
        (["some_graphs:number"], "is a int, not a StitchedModule or a Needle; name one, or a function"),
        (["some_graphs:needs"], "calling some_graphs:needs without arguments failed"),
        (["some_graphs:bad"], "some_graphs:bad can't be knotted: "),
        (["some_graphs:linear"], "is a Called, not a StitchedModule or a Needle; `weave ports some_graphs:linear` lists"),
        (["some_graphs:Job"], "is a Job, not a StitchedModule or a Needle; it has one as 'stitched'"),
        (["some_graphs:make", "-o", "g.png"], "'g.png' doesn't say by its suffix which format is wanted: one of .txt"),
        (["some_graphs:make", "-o", "nowhere/g.svg"], "can't write nowhere/g.svg: No such file"),
        (["some_graphs:make", "--trace", "none.jsonl"], "none.jsonl can't be read"),
    ],
)  # fmt: skip
def test_what_can_not_be_shown_is_said_in_a_sentence_and_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert err.splitlines()[-1].startswith("weave graph: ") or "can't be knotted" in err
    assert said in err
    assert "Traceback" not in err


def test_without_igraph(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "igraph", None)
    status, out, err = run(capsys, "some_graphs:make", "--format", "svg")
    assert (status, out) == (2, "")
    assert "pip install 'weave-dataflow[pictures]'; or say --format dot or mermaid" in err
    assert run(capsys, "some_graphs:make", "--format", "dot")[0] == 0


# --- with a trace: a ran 1 ms in one run and 3 ms in another, b 1 ms ---


@pytest.fixture
def trace(directory: Path) -> str:
    lines: list[dict[str, object]] = [
        {"event": "trace.started", "format": 1, "began_epoch_ns": 0},
        {
            "event": "graph",
            "graph": "g",
            "units": [["a", "function double", "fire"], ["b", "function double", "fire"]],
            "stitches": [[-1, 0, "input('x')", "input()"], [0, 1, "output()", "input()"]],
        },
    ]
    for run, took in (("r1", 1_000_000), ("r2", 3_000_000)):
        lines.append({"event": "run.started", "run": run, "time_ns": 0, "graph": "g", "driver": "inline"})
        for unit, begin, end in ((0, 0, took), (1, took, took + 1_000_000)):
            facts = {"run": run, "node": "ab"[unit], "unit": unit}
            lines.append({"event": "node.ready", "time_ns": begin, **facts})
            lines.append({"event": "node.started", "time_ns": begin, "thread": "main", **facts})
            lines.append({"event": "node.finished", "time_ns": end, "thread": "main", "duration_ms": 1.0, **facts})
        lines.append({"event": "run.finished", "run": run, "time_ns": 9_000_000, "status": "ok", "duration_ms": 9.0})
    (directory / "run.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return "run.jsonl"


def test_a_trace_colours_the_picture(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    def shown(form: str) -> str:
        status, out, _ = run(capsys, "some_graphs:make", "--format", form, "--trace", trace)
        assert status == 0
        return out

    root = ElementTree.fromstring(shown("svg"))
    boxes = {g.get("data-node"): g for g in root.iter("{http://www.w3.org/2000/svg}g") if g.get("data-node")}
    assert {node: box.get("class") for node, box in boxes.items()} == {
        "a": "box function heat-7 outlined",
        "b": "box function heat-4 outlined",
    }
    assert "2.00 ms" in "".join(boxes["a"].itertext())
    caption = "mean time in 2 runs: 1.00 ms to 2.00 ms; thick edge: on the critical path"
    assert caption in "".join(root.itertext())
    assert caption in shown("dot")
    assert "penwidth=4" in shown("dot")
    assert "<b>2.00 ms</b>" in shown("mermaid")
    text = "mean times in 2 runs (* on the critical path):\n  * a   2.00 ms\n  * b   1.00 ms\n"
    assert shown("text") == TEXT + text
    data = json.loads(run(capsys, "some_graphs:make", "--json", "--trace", trace)[1])
    assert data["runs"] == 2
    assert data["times"] == {"a": {"mean_ms": 2.0, "critical": True}, "b": {"mean_ms": 1.0, "critical": True}}


def test_the_trace_of_another_graph(trace: str, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = directory / trace
    path.write_text(path.read_text().replace('"b"', '"c"'))
    status, out, err = run(capsys, "some_graphs:make", "--trace", trace)
    assert (status, out) == (2, "")
    assert "no run of run.jsonl is of this graph: none knows 'b' (2 runs recorded)" in err


def test_a_needle_that_is_placed_on_ranks_is_drawn_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """Not this rank's part of it; each rank's nodes in a frame, or by its name."""
    shown = {}
    for form in ("text", "mermaid", "dot", "svg"):
        if form == "svg":
            pytest.importorskip("igraph", reason="an optional extra: pip install igraph")
        status, shown[form], _ = run(capsys, "some_graphs:placed", "--format", form)
        assert status == 0
    assert "rank 0: a\n" in shown["text"]
    assert "rank 1: b\n" in shown["text"]
    assert shown["mermaid"].count("subgraph rank") == 2
    assert shown["dot"].count("subgraph cluster_") == 2
    ElementTree.fromstring(shown["svg"])
    assert "rank 0" in shown["svg"]
    assert "rank 1" in shown["svg"]
    assert all("remote" not in text.replace("remote stroke", "") for form, text in shown.items() if form != "svg")
