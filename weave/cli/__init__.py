"""The command `weave`. Each subcommand imports what it needs when it is called, so that `weave --help` is quick."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

import weave

__all__ = ["main"]

# weave's own words: the module with `add_arguments(parser)` and `main(args)`, and a line about it.
OWN = {
    "demo": ("weave.demo.command", "distil a real model block by block, and score the result"),
    "ports": ("weave.cli.ports", "list what can be stitched of a module"),
    "trace": ("weave.cli.trace", "say what a recorded run did; make a picture of it"),
    "graph": ("weave.cli.graph", "show a stitched graph, as text or as a picture"),
    "plugins": ("weave.cli.plugins", "list the plugins that are installed, check them, begin one"),
    "run-ranks": ("weave.cli.run_ranks", "run a program on several ranks of this machine"),
    "doctor": ("weave.cli.doctor", "look whether this environment has what weave needs"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status.

    Plugins are loaded only where the first word is none of weave's own, and for the help that lists theirs.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    first = next((word for word in words if not word.startswith("-")), None)
    parser = argparse.ArgumentParser(
        prog="weave",
        description="Stitch PyTorch submodules, functions and constants into one graph, and run it.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"weave-dataflow {weave.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, (where, about) in OWN.items():
        sub = commands.add_parser(name, help=about, description=f"{about[0].upper()}{about[1:]}.")
        if name == first:
            module = importlib.import_module(where)
            module.add_arguments(sub)
            sub.set_defaults(weave_run=module.main)  # a name that no command's own arguments have
    if first is None and (not words or {"-h", "--help"} & set(words)):
        from weave.cli import added

        added.list_all(parser, commands)
    elif first is not None and first not in OWN:
        from weave.cli import added

        added.add(first, parser, commands)
    args = parser.parse_args(words)
    if not hasattr(args, "weave_run"):
        parser.print_help()
        return 0
    try:
        status = int(args.weave_run(args) or 0)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader (`| head`) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python flushes once more, and complains
        return 0
    return status
