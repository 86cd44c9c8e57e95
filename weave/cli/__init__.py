"""The command `weave`. Each subcommand imports what it needs when it is called, so that `weave --help` is quick."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import weave


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    from weave.cli import ports
    from weave.demo import command as demo

    parser = argparse.ArgumentParser(
        prog="weave", description="Stitch PyTorch submodules, functions and constants into one graph, and run it."
    )
    parser.add_argument("--version", action="version", version=f"weave-dataflow {weave.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, module, about in (
        ("demo", demo, "distil a real model block by block, and score the result"),
        ("ports", ports, "list what can be stitched of a module"),
    ):
        sub = commands.add_parser(name, help=about, description=f"{about[0].upper()}{about[1:]}.")
        module.add_arguments(sub)
        sub.set_defaults(run=module.main)
    args = parser.parse_args(arguments)
    if not hasattr(args, "run"):
        parser.print_help()
        return 0
    try:
        status = int(args.run(args))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader (`| head`) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python flushes once more, and complains
        return 0
    return status
