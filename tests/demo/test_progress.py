from __future__ import annotations

import io
import json
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from weave import ExternalTarget, FunctionTarget, Needle
from weave.demo.progress import JsonProgress, PlainProgress, Progress, live, loss_line, smoothed
from weave.demo.scores import Score, Scores
from weave.observe import flush

SCORES = Scores((Score(0.9, 0.5), Score(0.8, 0.25)), Score(0.7, 0.125))
BLOCKS = ("layers.0.ffn", "layers.1.ffn")


def _play(progress: Progress, steps: int = 7) -> None:
    progress.note("a [bracketed] note")
    progress.started(blocks=BLOCKS, steps=steps, training_texts=100, held_out_texts=10)
    progress.scoring("before", 10, 10)
    progress.scored("before", SCORES)
    losses: list[Sequence[float]] = [(1.0, 2.0)]
    progress.resumed(losses)
    for step in range(2, steps + 1):
        losses.append((1.0 / step, 2.0 / step))
        progress.step(step, losses)
        progress.checkpoint(step, Path("somewhere"))
    progress.scoring("after", 10, 10)
    progress.scored("after", SCORES)


def test_json_lines_are_one_object_each() -> None:
    stream = io.StringIO()
    _play(JsonProgress(stream))
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["event"] for line in lines[:5]] == ["note", "started", "scoring", "scored", "resumed"]
    steps = [line for line in lines if line["event"] == "step"]
    assert steps[0] == {"event": "step", "step": 2, "steps": 7, "loss": {"layers.0.ffn": 0.5, "layers.1.ffn": 1.0}}
    assert lines[-1] == {"event": "scored", "when": "after", "scores": json.loads(json.dumps(SCORES.as_dict()))}


def test_plain_lines_show_the_loss_of_each_block_every_few_steps() -> None:
    stream = io.StringIO()
    _play(PlainProgress(stream))
    steps = [line for line in stream.getvalue().splitlines() if line.startswith("step")]
    assert [line.split()[1] for line in steps] == ["5/7", "7/7"]
    assert steps[0].endswith("0.457 0.913")
    assert "a [bracketed] note" in stream.getvalue()
    assert "mean cosine to the teacher 0.700" in stream.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_the_live_line_fits_a_terminal_and_leaves_no_bar_behind(width: int) -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=True, highlight=False, markup=False)
    six = Scores(SCORES.alone * 3, SCORES.together)
    with live(console) as progress:
        progress.started(blocks=BLOCKS * 3, steps=60, training_texts=100, held_out_texts=10)
        progress.step(10, [(1.0, 0.2, 0.3, 0.4, 0.5, 0.6)])
        progress._bars.refresh()
        shown = stream.getvalue()
        progress.step(60, [(0.1,) * 6])
        progress.scored("after", six)
    assert "1.000 0.200 0.300 0.400 0.500 0.600" in shown
    assert "10/60" in shown
    after = stream.getvalue().split("trained: 60 steps")[1]
    assert "/60" not in after


def test_the_live_display_tells_everything() -> None:
    stream = io.StringIO()
    with live(Console(file=stream, width=100, force_terminal=True, highlight=False, markup=False)) as progress:
        _play(progress)
    for said in ("a [bracketed] note", "resumed after step 1", "before training", "after training", "trained: 7"):
        assert said in stream.getvalue()


def test_under_the_bar_stands_what_computes_just_now() -> None:
    stream, entered, go_on = io.StringIO(), threading.Event(), threading.Event()

    def waits(x: int) -> int:
        entered.set()
        assert go_on.wait(60)
        return x

    caller, node = ExternalTarget(), FunctionTarget("the node", waits)
    stitched = Needle().stitch(caller.input("x"), node.input()).stitch(node.output(), caller.output("y")).knot()
    with live(Console(file=stream, width=100, force_terminal=True, highlight=False, markup=False)) as progress:
        progress.started(blocks=BLOCKS, steps=60, training_texts=100, held_out_texts=10)
        progress.step(10, [(1.0, 0.2)])
        thread = threading.Thread(target=stitched, args=({"x": 1}, {}))
        thread.start()
        assert entered.wait(60)
        flush()
        progress._bars.refresh()
        go_on.set()
        thread.join(60)
    bar, row = stream.getvalue().rsplit("loss by block", 1)[1].splitlines()[:2]
    assert bar.strip().startswith("1.000 0.200")
    assert "0/1 nodes" in row
    assert "the node" in row


def test_losses_are_smoothed_over_the_last_steps_only() -> None:
    rows = [(100.0,)] * 5 + [(1.0,), (3.0,)] * 4
    assert smoothed(rows) == [2.0]
    assert smoothed([(1.0, 2.0)]) == [1.0, 2.0]
    assert loss_line([(0.25, 1.0)]) == "0.250 1.000"
