"""`weave run-ranks N script.py ...`: a program on N ranks of this machine, for a try.

Sets what torchrun sets, so a script doesn't notice the difference. On a cluster use torchrun, which this is not: it starts
nothing anew and knows one machine.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import threading
from typing import IO

_COLOURS = (36, 33, 35, 32, 34, 31)
_GRACE = 3.0  # seconds between asking a rank to end and ending it


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("ranks", type=_count, metavar="N", help="how many ranks")
    parser.add_argument("-m", "--module", action="store_true", help="the script is a module's name, as for python -m")
    parser.add_argument("script", help="the program, a Python file")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its own arguments")


def _count(text: str) -> int:
    if not text.isdigit() or not 0 < int(text) <= 1024:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of ranks: from 1 to 1024")
    return int(text)


def main(args: argparse.Namespace) -> int:
    """Run it; the status of the first rank that failed."""
    if not args.module and not os.path.exists(args.script):
        print(f"weave run-ranks: there is no file {args.script!r}", file=sys.stderr)
        return 2
    command = [sys.executable, "-u", *(["-m"] if args.module else []), args.script, *args.arguments]
    port = _free_port()
    crew = [_start(command, rank, args.ranks, port) for rank in range(args.ranks)]
    printing = threading.Lock()
    readers = [
        threading.Thread(target=_pass_on, args=(stream, out, rank, printing), daemon=True)
        for rank, process in enumerate(crew)
        for stream, out in ((process.stdout, sys.stdout), (process.stderr, sys.stderr))
    ]
    for reader in readers:
        reader.start()
    try:
        failed = _wait(crew)
    except KeyboardInterrupt:
        _end(crew)
        return 130
    if failed is not None:
        _end(crew)
    for reader in readers:
        reader.join(_GRACE)
    if failed is None:
        return 0
    status = crew[failed].returncode
    said = signal.Signals(-status).name if status < 0 else f"status {status}"
    print(f"weave run-ranks: rank {failed} ended with {said}; the others were ended", file=sys.stderr)
    return status if status > 0 else 1


def _start(command: list[str], rank: int, world_size: int, port: int) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    environment.setdefault("OMP_NUM_THREADS", "1")  # N processes share the cores, as under torchrun
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _pass_on(stream: IO[str] | None, out: IO[str], rank: int, printing: threading.Lock) -> None:
    """Lines of one rank, each with its number in front."""
    head = f"[{rank}] "
    if out.isatty() and not os.environ.get("NO_COLOR"):
        head = f"\x1b[{_COLOURS[rank % len(_COLOURS)]}m{head}\x1b[0m"
    assert stream is not None
    with stream:
        for line in stream:
            with printing:
                out.write(head + (line if line.endswith("\n") else line + "\n"))
                out.flush()


def _wait(crew: list[subprocess.Popen[str]]) -> int | None:
    """The first rank that fails; `None` where all end well."""
    ended = threading.Condition()
    statuses: dict[int, int] = {}

    def watch(rank: int) -> None:
        status = crew[rank].wait()
        with ended:
            statuses[rank] = status
            ended.notify()

    for rank in range(len(crew)):
        threading.Thread(target=watch, args=(rank,), daemon=True).start()
    with ended:
        while True:
            failed = next((rank for rank, status in statuses.items() if status), None)
            if failed is not None or len(statuses) == len(crew):
                return failed
            ended.wait(0.5)  # so that an interrupt is seen


def _end(crew: list[subprocess.Popen[str]]) -> None:
    for process in crew:
        if process.poll() is None:
            process.terminate()
    for process in crew:
        try:
            process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
