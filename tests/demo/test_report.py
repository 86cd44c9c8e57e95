from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from weave.demo import report
from weave.demo.charts import AFTER_COLOUR, BEFORE_COLOUR, draw_replace_one
from weave.demo.job import Driver, Parameters, Result, Settings
from weave.demo.overlap import Overlap
from weave.demo.scores import Score, Scores


@pytest.fixture
def result() -> Result:
    return Result(
        settings=Settings(steps=3, held_out=20),
        blocks=("layers.0.ffn", "layers.1.ffn"),
        parameters=Parameters((1000, 1000), (250, 250), 5000),
        before=Scores((Score(0.8, 0.5), Score(0.9, 0.6)), Score(0.5, 0.25)),
        after=Scores((Score(0.9, 0.7), Score(0.95, 0.8)), Score(0.8, 0.5)),
        losses=((1.0, 1.0), (0.8, 0.7), (0.5, 0.4)),
        training_graph="flowchart TD\n",
        scoring_graph="flowchart TD\n    a --> b\n",
        driver=Driver(max_workers=2),
        overlap=Overlap(steps=3, teacher_seconds=20.0, student_seconds=14.0, covered_seconds=9.8),
    )


def test_the_table_has_a_row_for_each_block_and_one_for_all(result: Result) -> None:
    rows = report.rows(result)
    assert [row.name for row in rows] == ["layers.0.ffn", "layers.1.ffn", "all together"]
    assert rows[-1].parameters == (2000, 500)
    assert rows[-1].cosine == (0.5, 0.8)
    assert rows[0].top1 == (0.5, 0.7)


def test_the_table_is_read_on_eighty_columns_and_names_its_headline(result: Result) -> None:
    text = report.table_text(result)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 100
    row = next(line for line in lines if line.strip().startswith("layers.1.ffn"))
    assert row.split() == ["layers.1.ffn", "1,000", "->", "250", "0.9000", "->", "0.9500", "60.0%", "->", "80.0%"]
    assert len(row) <= 80
    assert "mean cosine (all together): 0.500 -> 0.800; top-1 agreement: 25.0% -> 50.0%" in text
    assert "encoder: 5,000 -> 3,500 parameters (30% fewer)" in text


def test_improved_is_about_all_students_together(result: Result) -> None:
    assert result.improved
    assert not replace(result, after=result.before).improved
    worse_together = replace(result.after, together=Score(0.4, 0.9))
    assert not replace(result, after=worse_together).improved


def test_every_file_is_written_and_says_the_same(result: Result, tmp_path: Path) -> None:
    files = report.write(result, tmp_path)
    assert sorted(file.name for file in files) == sorted(path.name for path in tmp_path.iterdir())
    data = json.loads((tmp_path / "report.json").read_text())
    assert data["improved"] is True
    assert data["mean_cosine"] == {"before": 0.5, "after": 0.8}
    assert data["parameters"]["encoder_after"] == 3500
    assert data["losses"] == [[1.0, 1.0], [0.8, 0.7], [0.5, 0.4]]
    assert data["overlap"] == {
        "sync": False,
        "max_workers": 2,
        "steps": 3,
        "teacher_seconds": 20.0,
        "student_seconds": 14.0,
        "covered_seconds": 9.8,
        "covered_share": 9.8 / 14,
    }
    assert (tmp_path / "table.txt").read_text() == report.table_text(result)
    assert (tmp_path / "scoring.mmd").read_text() == result.scoring_graph


def test_what_was_covered_is_said_in_a_sentence(result: Result) -> None:
    said = "students trained 14.0 s, of which 9.8 s (70%) while the teacher's forward was still going on"
    assert report.overlap_line(result) == said
    resumed = replace(result, settings=replace(result.settings, steps=5))
    assert report.overlap_line(resumed) == f"{said} (in the 3 steps since the resume)"
    assert not report.overlap_line(replace(result, overlap=Overlap()))


def test_what_the_clock_said_is_neither_in_the_table_nor_in_what_makes_results_equal(result: Result) -> None:
    other = replace(result, driver=Driver(sync=True), overlap=Overlap(3, 1.0, 2.0, 0.0))
    assert other == result
    assert report.table_text(other) == report.table_text(result)


def _draw(folder: Path, after: float = 0.8) -> list[Path]:
    return draw_replace_one(
        folder,
        blocks=["layers.0.ffn", "layers.1.ffn"],
        before=[0.7, 0.6, -0.2],
        after=[0.9, 0.8, after],
        held_out=9,
        steps=5,
    )


def test_the_chart_is_a_picture_in_both_formats_and_the_same_each_time(tmp_path: Path) -> None:
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    for folder in (first, second, third):
        folder.mkdir()
    png, svg = _draw(first)
    assert png.read_bytes().startswith(b"\x89PNG")
    ElementTree.fromstring(svg.read_text())
    assert [file.read_bytes() for file in _draw(second)] == [png.read_bytes(), svg.read_bytes()]
    assert _draw(third, after=0.7)[1].read_bytes() != svg.read_bytes()
    for colour in (BEFORE_COLOUR, AFTER_COLOUR):
        assert colour.lower() in svg.read_text()


def test_the_two_colours_differ_in_lightness_too() -> None:
    def lightness(colour: str) -> float:
        red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        return 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2

    lighter, darker = lightness(BEFORE_COLOUR), lightness(AFTER_COLOUR)
    assert (lighter + 0.05) / (darker + 0.05) > 2
