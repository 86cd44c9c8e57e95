"""`weave ports module:attribute`: what can be stitched of a module."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from weave.cli.finding import found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "where",
        metavar="MODULE:ATTRIBUTE",
        help="where the nn.Module is: an importable module and a name in it (a class or a function is called without arguments)",
    )
    parser.add_argument("--json", action="store_true", help="rows as JSON")


def main(args: argparse.Namespace) -> int:
    """Print the ports; 2 where there is no such module."""
    try:
        module = load(args.where)
    except LookupError as error:
        print(f"weave ports: {error.args[0]}", file=sys.stderr)
        return 2
    from weave.graph.ports import list_ports

    rows = list_ports(module)
    if args.json:
        print(json.dumps([row._asdict() for row in rows], indent=2))
        return 0
    number = "1 path. It" if len(rows) == 1 else f"{len(rows)} paths. Each"
    print(f"{args.where}: {type(module).__name__}, {number} has an input and an output port.")
    names = max(len(repr(row.name)) for row in rows)
    types = max(len(row.type) for row in rows)
    for row in rows:
        notes = [f"same module as {row.same_as!r}"] if row.same_as else []
        notes += [f"no port: {row.refusal}"] if row.refusal else []
        print(f"  {row.name!r:<{names}}  {row.type:<{types}}  {'; '.join(notes)}".rstrip())
    return 0


def load(where: str) -> Any:
    """The `nn.Module` at `module:attribute`. Raises `LookupError` with a sentence for the user."""
    from torch import nn

    thing = found(where, nn.Module, example="torchvision.models:resnet18")
    if not isinstance(thing, nn.Module):
        raise LookupError(f"{where} is a {type(thing).__name__}, not an nn.Module")
    return thing
