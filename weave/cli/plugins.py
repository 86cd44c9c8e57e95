"""`weave plugins`: which plugins are installed, what each provides, and what is wrong with it."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weave.plugins.loader import PluginRecord

# What hooks provide, in words.
KINDS = {
    "weave_target_types": "target types",
    "weave_reducers": "reducers",
    "weave_adapters": "adapters",
    "weave_transports": "transports",
    "weave_commands": "commands",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("--json", action="store_true", help="records as JSON")
    parser.add_argument("--all", action="store_true", help="weave's own, too")
    what = parser.add_subparsers(title="commands", metavar="COMMAND", dest="what")
    text = "load every plugin, show the traceback of each that fails; exit status 1 where one does"
    what.add_parser("check", help=text, description=f"{text[0].upper()}{text[1:]}.")
    text = "write a package with a plugin in it: installable, tested, ready to be changed"
    new = what.add_parser("new", help=text, description=f"{text[0].upper()}{text[1:]}.")
    new.add_argument("name", metavar="NAME", help="the package's name, such as demo-thing")
    new.add_argument(
        "--into", type=Path, default=Path(), metavar="DIR", help="the directory to write it into (where you are)"
    )


def main(args: argparse.Namespace) -> int:
    """List, check, or write a new one."""
    if args.what == "new":
        return _new(args.name, args.into)
    from weave.builtin import builtin_records
    from weave.plugins.loader import installed

    own, records = builtin_records(), installed()
    notes = notes_on([*own, *records])
    if args.what == "check":
        return _check(records, notes)
    shown = [*own, *records] if args.all else records
    if args.json:
        print(json.dumps([as_dict(record, notes.get(id(record), ())) for record in shown], indent=2))
    elif shown:
        print(table(shown, notes))
    else:
        print("No plugins are installed. `weave plugins new NAME` begins one; `weave plugins --all` lists weave's own.")
    return 0


def notes_on(records: Sequence[PluginRecord]) -> Mapping[int, list[str]]:
    """Of names that are claimed twice: what to say, by the id of each record that claims one."""
    from weave.cli.added import refused
    from weave.plugins.registry import Registry

    registry = Registry(records)
    clashes = [
        ([owner for owner, _ in registry.commands[name]], why) for name, why in refused(registry.commands).items()
    ]
    for what, owners in registry.conflicts:
        both = " and ".join(dict.fromkeys(owners))
        clashes.append((list(owners), f"the {what} is claimed by {both}, so whoever uses it is refused"))
    said = {r: [why for owners, why in clashes if record.owner in owners] for r, record in enumerate(records)}
    return {id(record): said[r] for r, record in enumerate(records) if said[r] and not record.builtin}


def provided(record: PluginRecord) -> dict[str, list[str]]:
    """What a plugin provides: names by kind. A reducer's says for which ports."""
    found: dict[str, list[str]] = {}
    for hook, things in record.provides.items():
        ports: dict[str, list[str]] = {}
        for thing in things:
            kind = getattr(thing, "kind", None)
            ports.setdefault(thing.name, []).extend([kind] if kind else [])
        if ports:
            found[KINDS[hook]] = [f"{name} ({', '.join(kinds)})" if kinds else name for name, kinds in ports.items()]
    if "weave_observer" in record.hooks:
        found["observer"] = []
    return found


def as_dict(record: PluginRecord, clashes: Sequence[str]) -> dict[str, Any]:
    """A record for JSON."""
    return {
        "name": record.name,
        "distribution": record.distribution,
        "version": record.version,
        "status": record.status,
        "builtin": record.builtin,
        "hooks": list(record.hooks),
        "provides": provided(record),
        "error": record.why,
        "remarks": list(record.remarks),
        "conflicts": list(clashes),
    }


def table(records: Sequence[PluginRecord], notes: Mapping[int, Sequence[str]]) -> str:
    """A line a plugin; below it, what is wrong with it."""
    rows = [("name", "distribution", "version", "status", "provides")]
    for record in records:
        things = [f"{kind} {', '.join(names)}".rstrip() for kind, names in provided(record).items()]
        rows.append((record.name, record.distribution, record.version, record.status, "; ".join(things)))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = []
    for index, row in enumerate(rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        lines.append("  ".join([*cells, row[4]]).rstrip())
        if index:
            lines += [f"    {said}" for said in _wrong(records[index - 1], notes)]
    return "\n".join(lines)


def _wrong(record: PluginRecord, notes: Mapping[int, Sequence[str]]) -> list[str]:
    return [*([record.why] if record.error is not None else []), *record.remarks, *notes.get(id(record), ())]


def _check(records: Sequence[PluginRecord], notes: Mapping[int, Sequence[str]]) -> int:
    from weave.plugins.finding import DENY, names_in, same

    for record in records:
        print(f"{record.status:<8}  {record.owner}")
        for said in (*record.remarks, *notes.get(id(record), ())):
            print(f"    {said}")
        if record.trace:
            print(textwrap.indent(record.trace.rstrip(), "    "))
    known = {same(name) for record in records for name in (record.name, record.distribution)} | {"*"}
    for key, name in names_in(DENY).items():
        if key not in known:
            print(f"{DENY} names {name!r}, and no plugin is called that")
    states = [record.status for record in records]
    bad = states.count("failed")
    number = "1 plugin" if len(records) == 1 else f"{len(records)} plugins"
    print(f"{number}: {states.count('loaded')} loaded, {bad} failed, {states.count('disabled')} disabled")
    return 1 if bad or notes else 0


def _new(name: str, into: Path) -> int:
    from weave.cli.new_plugin import Refused, write

    try:
        made = write(name, into)
    except Refused as error:
        print(f"weave plugins new: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"weave plugins new: can't write {error.filename or into}: {error.strerror or error}", file=sys.stderr)
        return 2
    print(f"Written:\n{textwrap.indent(chr(10).join(str(file) for file in made.files), '  ')}\n\n{made.next}")
    return 0
