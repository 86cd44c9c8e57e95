"""`python -m bench` runs, compares results before it times anything, and says what it didn't measure. No figure is judged."""

from __future__ import annotations

import io
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.__main__ import main, measure_all
from bench.comparing import Comparison, Entry, Experiment
from bench.graphs import Shape, chain, critical_path, diamonds, layered, mixing, scattered
from bench.pairing import Contender, Pace, Spread, Timed, finish, measure, quick, schedule
from bench.peers import bare, sewing_kit, weave_graphs
from bench.rows import Row, failed
from bench.table import progress, show

PEERS = {"sewing_kit": "modelopt", "nnsight": "nnsight", "Hamilton": "hamilton", "LangGraph": "langgraph"}
FIELDS = set(Row.__dataclass_fields__)


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `--quick --json` writes where no peer is installed. (After `make bench` they are, so they are hidden here.)"""
    file: Path = tmp_path_factory.mktemp("bench") / "bench.json"
    with pytest.MonkeyPatch.context() as patch:
        for package in PEERS.values():
            for name in [name for name in sys.modules if name.partition(".")[0] == package]:
                patch.delitem(sys.modules, name)
            patch.setitem(sys.modules, package, None)  # an import of it raises
        patch.setattr(sys, "stdout", io.StringIO())
        assert main(["--quick", "--json", str(file)]) == 0
        printed = sys.stdout.getvalue()
    written: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return {**written, "printed": printed}


def test_the_json_has_its_shape(document: dict[str, Any]) -> None:
    assert document["format"] == 1
    assert {"python", "versions", "cores", "torch_threads", "collector", "quick"} <= set(document["about"])
    assert document["about"]["quick"] is True
    for row in document["rows"]:
        assert set(row) == FIELDS
        measured = row["status"] in ("baseline", "measured", "ok", "missed")
        assert measured == (row["value"] is not None)
        assert measured or row["note"], row  # never a gap without a word
    assert {row["section"] for row in document["rows"]} == {"passages", "engine", "events"}


def test_weave_is_measured_in_every_comparison_and_checked(document: dict[str, Any]) -> None:
    ratios = [row for row in document["rows"] if row["unit"] == "x" and row["value"] is not None]
    assert all(row["checked"] for row in ratios)
    for what in {row["what"] for row in ratios}:
        mine = [row for row in ratios if row["what"] == what and row["peer"].startswith("weave")]
        assert mine, what
    assert not failed([Row(**row) for row in document["rows"]])


def test_each_baseline_is_measured_against_itself(document: dict[str, Any]) -> None:
    rows = {(row["what"], row["peer"]): row for row in document["rows"]}
    baselines = [key for key, row in rows.items() if row["status"] == "baseline"]
    assert len(baselines) > 10
    for what, peer in baselines:
        assert rows[what, f"{peer}, again"]["note"] == "the noise floor"


@pytest.mark.parametrize("peer", PEERS)
def test_a_peer_that_is_not_there_has_rows_that_say_so(document: dict[str, Any], peer: str) -> None:
    rows = [row for row in document["rows"] if row["peer"] == peer]
    assert rows
    for row in rows:
        assert row["status"] == "missing"
        assert PEERS[peer] in row["note"]
    assert PEERS[peer] in document["printed"]


def test_standard_output_is_json_alone_when_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Experiment("one", lambda pace: [Row(section="engine", what="it", peer="weave", status="ok", value=1.0)])
    monkeypatch.setattr("bench.__main__.SECTIONS", {"passages": (), "engine": (_Section(one),)})
    assert main(["--quick", "--json", "-"]) == 0
    captured = capsys.readouterr()
    assert [row["what"] for row in json.loads(captured.out)["rows"]] == ["it"]
    assert "1 targets, 0 missed" in captured.err


def test_an_experiment_that_raises_is_a_row_and_a_bad_exit_status(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(pace: Pace) -> list[Row]:
        raise ValueError("[no] luck")

    after = Experiment(
        "after", lambda pace: [Row(section="engine", what="after", peer="weave", status="ok", value=1.0)]
    )
    monkeypatch.setattr("bench.__main__.SECTIONS", {"engine": (_Section(Experiment("before", broken), after),)})
    assert [(row.what, row.status) for row in measure_all(["engine"], quick())] == [
        ("before", "broken"),
        ("after", "ok"),
    ]
    assert main(["--quick"]) == 1
    assert "ValueError: [no] luck" in capsys.readouterr().out


class _Section:
    """What a module of the bench looks like to the command."""

    def __init__(self, *experiments: Experiment) -> None:
        self.experiments: Callable[[Pace], list[Experiment]] = lambda pace: list(experiments)


def test_a_contender_with_another_result_is_not_timed() -> None:
    timed: list[str] = []

    def contender(name: str, result: int) -> Entry:
        def call() -> int:
            timed.append(name)
            return result

        return Entry(name, lambda: call, target=2.0)

    def raising() -> Any:
        raise RuntimeError("can't")

    entries = [contender("base", 1), contender("weave", 2), Entry("peer", raising), contender("other", 1)]
    rows = Comparison(section="engine", what="it").run(entries, quick()).rows
    assert [(row.peer, row.status) for row in rows] == [
        ("base", "baseline"),
        ("base, again", "measured"),
        ("weave", "unequal"),
        ("peer", "broken"),
        ("other", "ok" if rows[-1].value is not None and rows[-1].value <= 2.0 else "missed"),
    ]
    assert timed.count("weave") == 1  # to see its result
    assert "can't" in rows[3].note
    assert failed(rows) == [rows[2]]  # a peer that is broken is no failure, weave with another result is


def test_turns_alternate_and_ratios_are_taken_within_a_round() -> None:
    order: list[str] = []
    pace = Pace(budget=0.0, fewest=4, most=4, block=0.0)

    def contender(name: str, seconds: float) -> Contender:
        def call() -> Timed:
            order.append(name)
            return Timed(seconds * 2 ** ((len(order) - 1) // 3))  # the machine gets slower from round to round

        return Contender(name, call)

    timings = finish(measure([contender("a", 1.0), contender("b", 2.0), contender("c", 3.0)], pace))
    assert "".join(order) == "abc" + "abccbaabccba"  # the first three are for warming up
    assert timings.ratio("b", "a") == Spread(2.0, 2.0, 2.0, 4)
    assert timings.ratio("c", "b") == Spread(1.5, 1.5, 1.5, 4)
    assert timings.seconds("a") == Spread(6.0, 3.5, 10.0, 4)


def test_a_slow_contender_sits_out_most_rounds_but_not_all() -> None:
    turns = list(schedule([0.001, 0.001, 0.1], Pace(budget=2.0, fewest=6, most=200)))
    assert len(turns) == 200
    assert all(0 in turn and 1 in turn for turn in turns)
    taken = [turn for turn in turns if 2 in turn]
    assert 6 <= len(taken) <= 8
    assert taken.count([0, 1, 2]) == taken.count([2, 1, 0])  # it too goes first as often as last


def test_a_slow_contender_takes_part_in_all_rounds_where_there_are_few() -> None:
    assert list(schedule([0.001, 5.0], quick())) == [[0, 1], [1, 0]]


def test_async_work_needs_a_loop() -> None:
    async def waits() -> None:
        await _Never()

    with pytest.raises(RuntimeError, match="event loop"):
        finish(waits())


class _Never:
    def __await__(self) -> Any:
        yield


def test_the_collector_is_as_it_was_afterwards() -> None:
    import gc

    seen: list[bool] = []
    for collector in (False, True):
        pace = Pace(budget=0.0, fewest=2, most=2, block=0.0, collector=collector)
        finish(measure([Contender("a", lambda: seen.append(gc.isenabled()))], pace))
        assert gc.isenabled()
    assert seen == [True, False, False, True, True, True]


@pytest.mark.parametrize("shape", [chain(30), layered(60), diamonds(9), scattered(60)], ids=lambda shape: shape.name)
def test_every_graph_of_the_bench_says_when_it_is_wired_wrongly(shape: Shape) -> None:
    right = bare.loop(mixing(shape))()
    assert weave_graphs.call(mixing(shape))() == right
    for node, feeders in enumerate(shape.feeds):
        if node > 3 and feeders:
            moved = (*feeders[:-1], feeders[-1] - 1 if feeders[-1] else feeders[-1] + 1)
            changed = Shape(shape.name, (*shape.feeds[:node], moved, *shape.feeds[node + 1 :]))
            assert bare.loop(mixing(changed))() != right, node
            break
    turned = Shape(shape.name, tuple(feeders[::-1] for feeders in shape.feeds))
    assert (bare.loop(mixing(turned))() == right) == (shape.name == "chain")


def test_the_critical_path_is_the_longest_way() -> None:
    assert critical_path(diamonds(2), [1, 2, 5, 1, 4, 3, 1]) == 1 + 5 + 1 + 4 + 1


def test_sewing_kit_is_loaded_without_its_parents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "modelopt" / "torch" / "puzzletron" / "sewing_kit"
    package.mkdir(parents=True)
    for folder in (tmp_path / "modelopt", *list(package.parents)[:2]):
        (folder / "__init__.py").write_text("raise ImportError('a training stack')\n")
    (package / "__init__.py").write_text("from .core import Needle\n")
    (package / "core.py").write_text("Needle = 7\n")
    for name in [name for name in sys.modules if name.partition(".")[0] == "modelopt"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    loaded = sewing_kit.load()
    try:
        assert loaded.Needle == 7
        assert sewing_kit.load() is loaded
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "modelopt"]:
            del sys.modules[name]


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_bar_is_drawn_on_a_terminal_by_no_thread_of_its_own() -> None:
    shown, threads = _Terminal(), threading.active_count()
    with progress(shown, 2) as tell:
        tell(1, "capturing [x]")
        assert threading.active_count() == threads
    assert "50%" in shown.getvalue()
    plain = io.StringIO()
    with progress(plain, 2) as tell:
        tell(1, "capturing")
    assert plain.getvalue() == ""


def test_the_table_says_how_many_targets_are_missed() -> None:
    rows = [
        Row(
            section="engine",
            what="a",
            peer="weave",
            status="missed",
            value=3.0,
            low=2.9,
            high=3.1,
            rounds=9,
            target=2.0,
        ),
        Row(section="engine", what="a", peer="LangGraph", status="missing", note="No module named 'langgraph'"),
        Row(section="engine", what="b", peer="weave", status="ok", value=412.0, unit="B/node", target=500),
    ]
    out = io.StringIO()
    show(
        rows,
        {
            "python": "3",
            "versions": {"torch": "2"},
            "cores": 2,
            "torch_threads": 1,
            "collector": "off",
            "million_additions_ms": 1.0,
            "quick": False,
        },
        out,
    )
    said = out.getvalue()
    assert "2 targets, 1 missed" in said
    assert "2.900 … 3.100" in said
    assert "412 B/node" in said
    assert "No module named 'langgraph'" in said
