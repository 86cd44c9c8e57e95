"""What stitching means, statement by statement, and the tests that hold it to that.

Data only. `TABLE[place]` maps sentences (our own words, one for each thing that a place says) to pytest node ids without
parameters, the most telling first. A place is a section of the definition and the number of the paragraph, row, rule or
bullet in it, from 1 on; 0 is what stands before the first one. `differs:` marks what the system that the definition
compares itself with does otherwise. `LATER` names what needs several processes or the asynchronous engine; the section
on ranks is not in here yet.

stitching.py    the picture (parts, port names, the table of ports, `InputArgs`), a stitch carries a value
runs.py         a run
knots.py        checks when the knot is tied
corners.py      corners
programs.py     what programs written for the seed's API rely on
later.py        what is not here yet, and why
session.py      what ran in this pytest session (for `tests/test_behaviour_table.py`)
"""

from __future__ import annotations

from .corners import CORNERS
from .knots import KNOTS
from .later import LATER
from .programs import PROGRAMS
from .runs import RUNS
from .stitching import PICTURE, STITCHES

Table = dict[str, dict[str, tuple[str, ...]]]

TABLE: Table = {**PICTURE, **STITCHES, **RUNS, **KNOTS, **CORNERS, **PROGRAMS}

# The places of each section, and those of them that say how the other system differs.
PLACES: dict[str, range] = {
    "picture": range(1, 10),
    "stitch": range(1, 7),
    "run": range(12),
    "knot": range(10),
    "corner": range(1, 17),
    "program": range(1, 9),
}
DIFFERS: dict[str, set[str]] = {
    "picture": {"picture 9"},
    "stitch": {"stitch 3", "stitch 4", "stitch 5", "stitch 6"},
    "run": {"run 1", "run 2", "run 3", "run 5", "run 6", "run 8", "run 11"},
    "knot": {"knot 3", "knot 4", "knot 8"},
    "corner": set(),
    "program": set(),
}

__all__ = ["DIFFERS", "LATER", "PLACES", "TABLE", "Table"]
