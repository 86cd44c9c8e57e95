"""`python -m bench`: measure, print the table, write the JSON.

The exit status says whether it could be measured: 1 where weave raised or gave another result than the baseline. A missed
target is no failure of the command, since a busy machine misses some.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from bench import at_once, engine_async, engine_sync, events, failure, makespan, memory, passages, tying
from bench.about import about
from bench.comparing import Experiment, told
from bench.pairing import Pace, quick
from bench.rows import Row, as_document, failed
from bench.table import progress, show

SECTIONS = {
    "passages": (passages,),
    "engine": (engine_sync, engine_async, makespan, at_once, failure, tying, memory),
    "events": (events,),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run it; returns the exit status."""
    options = _parser().parse_args(argv)
    torch.set_num_threads(1)
    pace = quick() if options.quick else Pace()
    pace = dataclasses.replace(pace, collector=options.gc, wall=options.wall)
    chosen = [name for name in SECTIONS if name in (options.section or SECTIONS)]
    rows = measure_all(chosen, pace)
    facts = about(pace, quick=options.quick)
    to_stdout = options.json == "-"
    # Standard output is one JSON object then, and the table goes where a person still sees it.
    show(rows, facts, sys.stderr if to_stdout else sys.stdout)
    if options.json is not None:
        text = json.dumps(as_document(rows, facts), indent=1) + "\n"
        if to_stdout:
            sys.stdout.write(text)
        else:
            Path(options.json).write_text(text, encoding="utf-8")
    return 1 if failed(rows) else 0


def measure_all(sections: Sequence[str], pace: Pace) -> list[Row]:
    """Every experiment of these sections. One that raises becomes a row, and the others go on."""
    todo: list[tuple[str, Experiment]] = [
        (name, experiment) for name in sections for module in SECTIONS[name] for experiment in module.experiments(pace)
    ]
    rows: list[Row] = []
    with progress(sys.stderr, len(todo)) as tell:
        for number, (section, experiment) in enumerate(todo):
            tell(number, experiment.title)

            def tick(share: float, number: int = number, title: str = experiment.title) -> None:
                tell(number + share, title)

            try:
                rows += experiment.run(dataclasses.replace(pace, tick=tick))
            except Exception as error:
                rows.append(
                    Row(section=section, what=experiment.title, peer="bench", status="broken", note=told(error))
                )
    return rows


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="How weave compares, in pairs and in one process. Takes a few minutes."
    )
    parser.add_argument("--section", action="append", choices=list(SECTIONS), help="only this one (may be repeated)")
    parser.add_argument("--json", metavar="PATH", help="write the results there as JSON; - for standard output")
    parser.add_argument("--quick", action="store_true", help="two rounds of everything: shows that it runs, no more")
    parser.add_argument("--wall", action="store_true", help="time everything by the wall clock, on an idle machine")
    parser.add_argument("--gc", action="store_true", help="leave Python's collector on while timing")
    return parser


if __name__ == "__main__":
    sys.exit(main())
