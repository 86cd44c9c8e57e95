"""`weave trace`: what a recorded run did, in numbers, for Perfetto, as a page."""

from __future__ import annotations

import argparse
import glob
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weave.observe.summary import NodeRow, RunRow
    from weave.observe.trace import Trace

TOP = 10  # rows of a table, unless it's said
_RANK = re.compile(r"\.rank\d+(\.\d+)?$")


class Refused(Exception):
    """What can't be done, in a sentence for the user."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    what = parser.add_subparsers(title="commands", metavar="COMMAND", dest="what", required=True)
    for name, (_, about) in WHAT.items():
        sub = what.add_parser(name, help=about, description=f"{about[0].upper()}{about[1:]}.")
        sub.add_argument(
            "files",
            nargs="+",
            metavar="FILE",
            help="what WEAVE_TRACE or a Recorder wrote; a directory or a pattern stands for the traces there. "
            "Several become one, on one clock: the ranks of a program",
        )
        sub.add_argument("--run", metavar="ID", help="this run only; the first digits of its id will do")
        if name == "summary":
            sub.add_argument("--top", type=_number, metavar="N", help=f"rows of a table at most ({TOP}; JSON: all)")
            sub.add_argument("--json", action="store_true", help="the same as JSON")
        else:
            sub.add_argument(
                "-o", "--output", type=Path, metavar="OUT", help="the file to write (beside the first FILE)"
            )


def main(args: argparse.Namespace) -> int:
    """Summarise, convert, or write the page; 2 where there is no trace, or no such run."""
    from weave.errors import TraceException
    from weave.observe.trace import read_trace

    try:
        files = found(args.files)
        trace = read_trace(files)
        for name in trace.cut:
            _remark(f"{name} ends in the middle of a line: the program was killed; what was written before is shown")
        if args.run:
            trace.runs = _chosen(trace, args.run)
        WHAT[args.what][0](args, files, trace)
    except (Refused, TraceException) as error:
        print(f"weave trace {args.what}: {error}", file=sys.stderr)
        return 2
    return 0


def found(words: Iterable[str]) -> list[Path]:
    """The files that are meant: as named; the traces of a directory, of a pattern; `run.jsonl` for its ranks' files."""
    files: dict[Path, Path] = {}  # a file that two words name is one file
    for word in words:
        path = Path(word)
        if path.is_dir():
            here = [file for file in sorted(path.glob("*.jsonl")) if _begins_like_one(file)]
            if not here:
                raise Refused(
                    f"there is no trace in the directory {word}; WEAVE_TRACE={path / 'run.jsonl'} records one"
                )
        elif path.exists():
            here = [path]
        else:
            ranks = f"{glob.escape(str(path.with_suffix('')))}.rank*{path.suffix}"  # as a Recorder calls them
            here = sorted(Path(file) for file in glob.glob(word) or glob.glob(ranks))
            if not here:
                raise Refused(f"there is no file {word}; WEAVE_TRACE={word} python your_program.py records one")
        for file in here:
            files.setdefault(file.resolve(), file)
    return list(files.values())


def _begins_like_one(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            return b'"trace.started"' in opened.readline(65536)
    except OSError:
        return False


def _chosen(trace: Trace, which: str) -> list[Any]:
    runs = [run for run in trace.runs if run.run.startswith(which)]
    if not runs:
        known = list(dict.fromkeys(run.run for run in trace.runs))
        more = f" and {len(known) - 5} more" if len(known) > 5 else ""
        raise Refused(f"there is no run {which}; there are {', '.join(known[:5]) or 'none'}{more}")
    return runs


def _remark(said: str) -> None:
    print(f"weave trace: {said}", file=sys.stderr)


def _number(word: str) -> int:
    number = int(word)
    if number < 1:
        raise ValueError
    return number


# --- pictures ---


def _convert(args: argparse.Namespace, files: Sequence[Path], trace: Trace) -> None:
    from weave.observe.perfetto import write_perfetto

    out = _output(args, files, ".perfetto.json")
    drawing = _written(out, lambda: write_perfetto(trace, out))
    if drawing.left_out:
        _remark(
            f"{_counted(drawing.left_out, 'arrow')} left out: by these clocks a value came before it was sent, "
            f"up to {_ms(drawing.behind_ns)} ms; the ranks' clocks differ by that much at least"
        )
    print(f"{out}: {_counted(len(trace.runs), 'run')}. Open it at https://ui.perfetto.dev (it stays on your machine).")


def _html(args: argparse.Namespace, files: Sequence[Path], trace: Trace) -> None:
    from weave.observe.page import write_page

    out = _output(args, files, ".html")
    _written(out, lambda: write_page(trace, out))
    print(f"{out}: {_counted(len(trace.runs), 'run')}. Open it in a browser; it needs no network.")


def _output(args: argparse.Namespace, files: Sequence[Path], suffix: str) -> Path:
    """Where to write. Unless it's said, beside the first file: `run.rank0.jsonl` gives `run.perfetto.json`."""
    first = files[0]
    out: Path = args.output or first.with_name(_RANK.sub("", first.stem) + suffix)
    if out.resolve() in {file.resolve() for file in files}:
        raise Refused(f"{out} is the trace itself; give another name with -o")
    return out


def _written(out: Path, write: Callable[[], Any]) -> Any:
    try:
        return write()
    except OSError as error:
        raise Refused(f"{out} can't be written: {error.strerror or error}; give another name with -o") from error


# --- numbers ---


def _summary(args: argparse.Namespace, files: Sequence[Path], trace: Trace) -> None:
    from weave.observe.summary import node_rows, run_rows

    runs, nodes = run_rows(trace.runs), node_rows(trace.runs)
    if args.json:
        said = {
            "files": [str(file) for file in files],
            "cut": trace.cut,
            "ranks": trace.ranks,
            "runs": [row.as_dict() for row in runs[: args.top]],
            "nodes": [row.as_dict() for row in nodes[: args.top]],
        }
        print(json.dumps(said, indent=2))
        return
    top = args.top or TOP
    print("\n".join(_head(files, trace)))
    if runs:
        print("\n".join(["", *_runs(runs, top, bool(trace.ranks))]))
        longest = max(runs, key=lambda row: row.figures.duration_ns)
        print("\n".join(["", *_path(longest, top, len(runs) > 1)]))
    if nodes:
        print("\n".join(["", *_nodes(nodes, top)]))


def _head(files: Sequence[Path], trace: Trace) -> list[str]:
    statuses = Counter(run.status for run in trace.runs)
    said = [_counted(len(trace.runs), "run")]
    said += [f"{count} {status}" for status, count in statuses.most_common()] if len(trace.runs) > 1 else []
    said += [f"{_counted(len(trace.ranks), 'rank')}"] if trace.ranks else []
    header = trace.headers[0]
    made = [f"{name} {header[name]}" for name in ("weave", "torch", "python") if header.get(name)]
    program = [str(header["program"])] if header.get("program") else []
    names = f"{files[0]} and {_counted(len(files) - 1, 'other')}" if len(files) > 1 else str(files[0])
    return [f"{names}: {', '.join(said)}", *([", ".join([*program, *made])] if program or made else [])]


def _runs(rows: Sequence[RunRow], top: int, ranks: bool) -> list[str]:
    longest = sorted(rows, key=lambda row: -row.figures.duration_ns)[:top]
    kept = {id(row) for row in longest}
    table = [["run", *(["rank"] if ranks else []), "status", "began ms", "took ms", "critical path ms", "busy ms"]]
    table[0] += ["overlap", "nodes", "bytes"]
    for row in rows:
        if id(row) not in kept:
            continue
        run, f = row.run, row.figures
        cells = [run.run, *(["" if run.rank is None else str(run.rank)] if ranks else []), run.status]
        cells += [_ms(ns) for ns in (run.started_ns, f.duration_ns, f.critical_path_ns, f.busy_ns)]
        table.append([*cells, "" if f.overlap_pct is None else f"{f.overlap_pct:.1f} %", str(f.nodes), f"{f.bytes:,}"])
    lines = _table(table, left={"run", "status"})
    for row in rows:  # below the table: an error's text is as long as it likes
        if id(row) in kept and row.run.error_type:
            lines.append(f"{row.run.run} raised {row.run.error_type}: {row.run.error}".splitlines()[0][:200])
    if len(rows) > top:
        lines.append(f"... and {_counted(len(rows) - top, 'shorter run')} (--top {len(rows)} shows all)")
    return lines


def _path(row: RunRow, top: int, several: bool) -> list[str]:
    """The critical path in its order; of a long one the nodes that add the most."""
    found = row.figures
    of = f"the longest run, {row.run.run}" if several else row.run.run
    lines = [f"critical path of {of}: {_ms(found.critical_path_ns)} of {_ms(found.duration_ns)} ms"]
    kept = set(sorted(range(len(row.path)), key=lambda place: -row.path[place][1])[:top])
    table = [["node", "adds ms", "share"]]
    for place in sorted(kept):
        node, ns = row.path[place]
        table.append([node, _ms(ns), f"{100 * ns / found.critical_path_ns:.1f} %" if found.critical_path_ns else ""])
    lines += [f"  {line}" for line in _table(table, left={"node"})] if kept else ["  no node began"]
    if len(row.path) > top:
        rest = sum(ns for place, (_, ns) in enumerate(row.path) if place not in kept)
        lines.append(f"  ... and {_counted(len(row.path) - top, 'other')} on it: {_ms(rest)} ms")
    return lines


def _nodes(rows: Sequence[NodeRow], top: int) -> list[str]:
    table = [["node", "count", "not ok", "total ms", "mean ms", "max ms", "waited ms", "bytes"]]
    for row in rows[:top]:
        times = [_ms(ns) for ns in (row.total_ns, row.mean_ns, row.longest_ns, row.wait_ns)]
        table.append([row.node, str(row.count), str(row.not_ok or ""), *times, f"{row.bytes:,}"])
    lines = _table(table, left={"node"})
    if len(rows) > top:
        lines.append(f"... and {_counted(len(rows) - top, 'other node')} (--top {len(rows)} shows all)")
    return lines


def _table(rows: Sequence[Sequence[str]], left: set[str]) -> list[str]:
    """Columns under a ruled head, figures to the right. Not by rich: it's only there with the demo."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if name in left else cell.rjust(width)
            for cell, width, name in zip(row, widths, rows[0], strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "  ".join("-" * width for width in widths))
    return lines


def _ms(ns: float) -> str:
    return f"{ns / 1e6:,.3f}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


# What `weave trace` does, by its word.
WHAT: dict[str, tuple[Callable[[argparse.Namespace, Sequence[Path], Trace], None], str]] = {
    "summary": (_summary, "say how long runs and nodes took, what waited, and what the time hangs on"),
    "convert": (_convert, "write the trace for Perfetto, https://ui.perfetto.dev"),
    "html": (_html, "write one page with timeline and graph, to look at or to send to somebody"),
}
