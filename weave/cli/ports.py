"""`weave ports module:attribute`: what can be stitched of a module."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from typing import Any


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
    print(f"{args.where}: {type(module).__name__}, {len(rows)} paths. Each has an input and an output port.")
    names = max(len(repr(row.name)) for row in rows)
    types = max(len(row.type) for row in rows)
    for row in rows:
        notes = [f"same module as {row.same_as!r}"] if row.same_as else []
        notes += [f"no port: {row.refusal}"] if row.refusal else []
        print(f"  {row.name!r:<{names}}  {row.type:<{types}}  {'; '.join(notes)}".rstrip())
    return 0


def load(where: str) -> Any:
    """The `nn.Module` at `module:attribute`. Raises `LookupError` with a sentence for the user."""
    name, _, attribute = where.partition(":")
    if not name or not attribute:
        raise LookupError(f"{where!r} is not of the form module:attribute, such as torchvision.models:resnet18")
    from torch import nn

    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` does, so that a file beside the user is found
    try:
        found: Any = importlib.import_module(name)
    except Exception as error:  # a module may raise anything while it is imported
        raise LookupError(f"can't import {name!r}: {type(error).__name__}: {error}") from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise LookupError(f"{name!r} has no {attribute!r}")
        found = getattr(found, part)
    if not isinstance(found, nn.Module) and callable(found):
        try:
            found = found()
        except Exception as error:
            raise LookupError(f"calling {where} without arguments failed: {error!r}") from error
    if not isinstance(found, nn.Module):
        raise LookupError(f"{where} is a {type(found).__name__}, not an nn.Module")
    return found
