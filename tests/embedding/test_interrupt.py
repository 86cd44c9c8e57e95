"""Ctrl-C, in a process of its own: the signal comes while a node computes."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, os, signal, sys, threading
from weave import ExternalTarget, FunctionTarget, Needle

caller, log = ExternalTarget(), []

async def waits(x):
    try:
        await asyncio.Event().wait()
    finally:
        log.append("waits ended")
        noticed.set()

def interrupted(x):
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    noticed.wait(60)
    log.append("interrupted ended")

def behind(x):
    log.append("behind ran")

noticed = threading.Event()
i, b = FunctionTarget("interrupted", interrupted), FunctionTarget("behind", behind)
needle = Needle().stitch(caller.input("x"), i.input()).stitch(i.output(), b.input())
if sys.argv[1] == "run":
    needle.stitch(caller.input("x"), FunctionTarget("waits", waits).input())
stitched = needle.knot()

async def main():
    try:
        await stitched.run({"x": 0}, {})
    finally:
        log.append("run ended")

try:
    if sys.argv[1] == "run":
        asyncio.run(main())
    else:
        stitched({"x": 0}, {})
except KeyboardInterrupt:
    log.append("KeyboardInterrupt")
print(", ".join(log))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="sends a signal to a thread")
@pytest.mark.parametrize(
    ("how", "wanted"),
    [
        ("run", {"waits ended", "interrupted ended", "run ended", "KeyboardInterrupt"}),
        ("call", {"KeyboardInterrupt"}),
    ],
)
def test_everything_has_ended_when_it_comes_out(how: str, wanted: set[str]) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, timeout=120)
    log = done.stdout.strip().split(", ")
    assert (set(log), done.returncode) == (wanted, 0), done.stderr
    assert log[-1] == "KeyboardInterrupt"
