"""`weave graph module:attribute`: a stitched graph as text, Mermaid, DOT or SVG, coloured by a trace's times."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weave.cli.finding import found
from weave.errors import KnotException, PluginException, TraceException

if TYPE_CHECKING:
    from weave.graph.plan import Plan
    from weave.observe.heat import Times

FORMATS = ("text", "mermaid", "dot", "svg")
SUFFIXES = {".txt": "text", ".mmd": "mermaid", ".mermaid": "mermaid", ".dot": "dot", ".gv": "dot", ".svg": "svg"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "where",
        metavar="MODULE:ATTRIBUTE",
        help="where the StitchedModule or Needle is: an importable module and a name in it "
        "(a class or a function is called without arguments)",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--format", choices=FORMATS, help="how to show it (default: by the suffix of -o, else text)")
    form.add_argument("--json", action="store_true", help="its units and stitches as JSON")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="where to write it (default: print it)")
    parser.add_argument(
        "--trace",
        type=Path,
        action="append",
        metavar="FILE",
        help="colour the nodes by their mean time in this trace, and outline the critical path; once for each rank's file",
    )


def main(args: argparse.Namespace) -> int:
    """Show the graph; 2 where there is no such graph, or where it can't be shown like that."""
    try:
        form = _form(args)
        plan, ranks = load(args.where)
        measured = _measured(plan, args.trace) if args.trace else None
        text = json_text(plan, measured) if form == "json" else shown(plan, form, measured, ranks)
        if args.output is None:
            sys.stdout.write(text)
        else:
            _write(args.output, text)
    except (LookupError, TraceException) as error:
        print(
            f"weave graph: {error}" if isinstance(error, TraceException) else f"weave graph: {error.args[0]}",
            file=sys.stderr,
        )
        return 2
    return 0


def load(where: str) -> tuple[Plan, dict[str, int]]:
    """The plan of the graph at `module:attribute`, and where its nodes compute if it is placed on ranks.

    Raises `LookupError` with a sentence for the user.
    """
    from torch import nn

    from weave.needle import Needle
    from weave.stitched import StitchedModule

    kinds = (StitchedModule, Needle)
    thing = found(where, kinds, example="app.graphs:stitched", leave=nn.Module)
    ranks: dict[str, int] = {}
    if isinstance(thing, Needle):
        try:
            thing, ranks = thing.whole()  # not this rank's part of it
        except (KnotException, PluginException) as error:
            raise LookupError(f"{where} can't be knotted: {error}") from error
    if not isinstance(thing, StitchedModule):
        raise LookupError(
            f"{where} is a {type(thing).__name__}, not a StitchedModule or a Needle; {_near(where, thing)}"
        )
    return thing.plan, ranks


def _near(where: str, thing: Any) -> str:
    """What to do instead."""
    from torch import nn

    from weave.needle import Needle
    from weave.stitched import StitchedModule

    inside = [
        name for name, value in getattr(thing, "__dict__", {}).items() if isinstance(value, StitchedModule | Needle)
    ]
    if inside:
        return f"it has one as {inside[0]!r}: write a function without arguments that returns that, and name it here"
    if isinstance(thing, nn.Module):
        return f"`weave ports {where}` lists what can be stitched of it"
    return "name one, or a function without arguments that returns one"


def _form(args: argparse.Namespace) -> str:
    if args.json or args.format:
        return "json" if args.json else str(args.format)
    if args.output is None:
        return "text"
    suffix = args.output.suffix.lower()
    if suffix == ".json":
        return "json"
    if suffix not in SUFFIXES:
        raise LookupError(
            f"{str(args.output)!r} doesn't say by its suffix which format is wanted: one of {' '.join([*SUFFIXES, '.json'])} "
            "does, or say --format"
        )
    return SUFFIXES[suffix]


def _measured(plan: Plan, paths: list[Path]) -> Times:
    from weave.observe.heat import times
    from weave.observe.trace import read_trace

    trace = read_trace(paths)
    nodes = [unit.node for unit in plan.units]
    measured = times(trace, nodes)
    if not measured.runs:
        others = {unit.node for run in trace.runs for unit in run.graph.units}
        missing = [node for node in nodes if node not in others]
        why = f"none knows {missing[0]!r}" if missing else "none has all of its nodes"
        raise LookupError(
            f"no run of {', '.join(map(str, paths))} is of this graph: {why} ({len(trace.runs)} runs recorded). "
            "Record one with WEAVE_TRACE=run.jsonl"
        )
    return measured


def shown(plan: Plan, form: str, measured: Times | None, ranks: Mapping[str, int] = {}) -> str:
    """The graph in a format that is not JSON."""
    from weave.graph.dot import dot
    from weave.graph.picture import picture_of
    from weave.graph.render import mermaid
    from weave.graph.svg import svg

    if form == "text":
        where = "".join(f"  rank {rank}: {', '.join(nodes)}\n" for rank, nodes in _by_rank(ranks))
        return f"{plan}\n{where}{_table(measured) if measured else ''}"
    heat = measured.heat() if measured else {}
    critical = measured.critical if measured else frozenset()
    caption = _caption(measured) if measured else ""
    if form == "mermaid":
        return mermaid(plan, heat, critical, ranks)
    if form == "dot":
        return dot(picture_of(plan, ranks), heat, critical, caption)
    try:
        return svg(picture_of(plan, ranks), heat, critical, caption)
    except (ModuleNotFoundError, ValueError) as error:
        raise LookupError(f"{error}; or say --format dot or mermaid") from error


def _by_rank(ranks: Mapping[str, int]) -> list[tuple[int, list[str]]]:
    found: dict[int, list[str]] = {}
    for node, rank in ranks.items():
        found.setdefault(rank, []).append(node)
    return sorted(found.items())


def json_text(plan: Plan, measured: Times | None) -> str:
    """The graph as JSON; the times by node, where there are some."""
    data: dict[str, Any] = plan.to_dict()
    if measured:
        data["runs"] = measured.runs
        data["times"] = {
            node: {"mean_ms": mean / 1e6, "critical": node in measured.critical}
            for node, mean in measured.mean_ns.items()
        }
    return json.dumps(data, indent=2) + "\n"


def _runs(measured: Times) -> str:
    return "1 run" if measured.runs == 1 else f"{measured.runs} runs"


def _caption(measured: Times) -> str:
    from weave.observe.heat import said

    means = measured.mean_ns.values()
    spread = f": {said(min(means))} to {said(max(means))}" if means else ""
    return f"mean time in {_runs(measured)}{spread}; thick edge: on the critical path"


def _table(measured: Times) -> str:
    from weave.observe.heat import said

    width = max(map(len, measured.mean_ns), default=0)
    lines = [f"mean times in {_runs(measured)} (* on the critical path):"]
    for node, mean in sorted(measured.mean_ns.items(), key=lambda item: -item[1]):
        lines.append(f"  {'*' if node in measured.critical else ' '} {node:<{width}}  {said(mean):>8}")
    return "\n".join(lines) + "\n"


def _write(path: Path, text: str) -> None:
    try:
        path.write_bytes(text.encode("utf-8", "replace"))
    except OSError as error:
        raise LookupError(f"can't write {path}: {error.strerror or error}") from error
