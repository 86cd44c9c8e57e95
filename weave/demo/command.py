"""``weave demo``: the command line of the demo. Imports nothing heavy until the command is run."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from weave.demo import CHECKPOINT_NAME
from weave.demo.install import DemoException, require_extras
from weave.errors import TraceException

if TYPE_CHECKING:
    from weave.demo.job import Result
    from weave.demo.progress import Progress

SUMMARY = "distil a real sentence encoder block by block, and score the students inside it"

DESCRIPTION = """\
Each feed-forward block of a sentence encoder (all-MiniLM-L6-v2) is cut to a quarter of its hidden units. One stitched
graph runs the encoder once a batch, hands every student what its block received, compares with what the block gave,
and trains the student in the same run, while the encoder's forward goes on. Then the students are stitched into the
encoder and scored on held-out text: each alone, and all together. Takes about a minute on two cores, and no GPU. For
the same seed the scores are the same to the last digit, however it is run: resumed, with --sync, with any --max-workers.
DIR/trace.html shows the training, step by step: who computed when, and who waited for whom.
"""

EPILOG = """\
exit status: 0 the students improved; 1 they did not; 2 it could not be run as asked; 130 interrupted.
"""

DEFAULT_OUT = Path("weave-demo")
DEFAULT_STEPS = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments and its description to ``parser``."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = DESCRIPTION
    parser.epilog = EPILOG
    parser.add_argument(
        "--steps", type=_count, default=DEFAULT_STEPS, metavar="N", help="training steps, a batch each (%(default)s)"
    )
    parser.add_argument(
        "--seed", type=_count, default=0, metavar="S", help="which texts each batch has follows from it (%(default)s)"
    )
    parser.add_argument(
        "--out", type=Path, default=DEFAULT_OUT, metavar="DIR", help="where everything is written (%(default)s)"
    )
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in DIR, if there is one")
    driver = parser.add_mutually_exclusive_group()
    driver.add_argument(
        "--sync", action="store_true", help="train in one thread, each student after the teacher's forward is over"
    )
    driver.add_argument(
        "--max-workers",
        type=_positive,
        metavar="N",
        help="how many modules and functions compute at once while the students train (one for each core)",
    )
    parser.add_argument("--json", action="store_true", help="JSON lines on standard output, and nothing else there")


def main(args: argparse.Namespace) -> int:
    """Run the command with the arguments that :func:`add_arguments` defines; the exit status."""
    started, cpu_started = time.monotonic(), time.process_time()
    try:
        require_extras()
        from weave.demo import job, report

        settings = job.Settings(seed=args.seed, steps=args.steps)
        driver = job.Driver(sync=args.sync, max_workers=args.max_workers)
        with _progress(json_lines=args.json) as progress:
            result = job.run(settings, args.out, progress, resume=args.resume, driver=driver)
        files = report.write(result, args.out)
    except DemoException as error:
        return _refused(str(error))
    except BrokenPipeError:  # nobody reads on; no matter of files, and the caller's to answer
        raise
    except TraceException as error:
        return _refused(str(error))
    except OSError as error:
        return _refused(f"can't use {error.filename or args.out}: {error.strerror or error}")
    except KeyboardInterrupt:
        print(f"weave demo: interrupted{_after_interrupt(args)}", file=sys.stderr)
        return 130
    seconds = {
        "seconds": round(time.monotonic() - started, 1),
        "cpu_seconds": round(time.process_time() - cpu_started, 1),
    }
    if args.json:
        line = {
            "event": "finished",
            **report.as_dict(result),
            **seconds,
            "files": [str(file) for file in files],
        }
        print(json.dumps(line), flush=True)
    else:
        _conclude(result, files, seconds)
    return 0 if result.improved else 1


def _conclude(result: Result, files: Sequence[Path], seconds: dict[str, float]) -> None:
    from rich.console import Console

    from weave.demo import report

    if sys.stdout.isatty():
        console = Console(highlight=False, markup=False)
        console.print()
        console.print(report.table(result))
        console.print(report.headline(result), style="bold")
    else:
        print(f"\n{report.table_text(result)}", end="")
    if not result.improved:
        print("The students did not improve.")
    if said := report.overlap_line(result):
        print(f"\n{said}")
    print(f"\n{seconds['seconds']} s, {seconds['cpu_seconds']} s of CPU. Written:")
    for file in files:
        print(f"  {file}")


def _refused(message: str) -> int:
    print(f"weave demo: {message}", file=sys.stderr)
    return 2


def _after_interrupt(args: argparse.Namespace) -> str:
    if not (args.out / CHECKPOINT_NAME).exists():
        return " before there was anything to keep"
    words = ["weave", "demo"]
    if args.steps != DEFAULT_STEPS:
        words += ["--steps", str(args.steps)]
    if args.seed != 0:
        words += ["--seed", str(args.seed)]
    if args.out != DEFAULT_OUT:
        words += ["--out", str(args.out)]
    if args.sync:
        words.append("--sync")
    if args.max_workers is not None:
        words += ["--max-workers", str(args.max_workers)]
    return f"; go on with: {shlex.join([*words, '--resume'])}"


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is less than 0")
    return number


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


@contextmanager
def _progress(*, json_lines: bool) -> Iterator[Progress]:
    from weave.demo.progress import JsonProgress, PlainProgress, live

    if json_lines:
        yield JsonProgress(sys.stdout)
    elif sys.stdout.isatty():
        from rich.console import Console

        with live(Console(highlight=False, markup=False)) as shown:
            yield shown
    else:
        yield PlainProgress(sys.stdout)
