"""Kills at random moments: `python -m tests.remote.processes.kills 200 [seed]`. Survivors always raise and never hang."""

from __future__ import annotations

import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.remote.processes.crew import Crew

WORLD = 3


def kill_one(draw: random.Random, folder: Path) -> list[str]:
    """One try. Returns the exceptions that the survivors raised.

    Raises:
        AssertionError: one hung, or ended in another way.
    """
    victim, moment = draw.randrange(WORLD), draw.choice((0.02, 0.2, 1.0)) * draw.random()
    # Where rank 0 holds the store, its death takes that away too.
    world, agent = draw.choice((("group", True), ("join", False)))
    way, silent = draw.choice(("sync", "asyncio", "trio")), draw.choice((1, 600))
    what = f"victim {victim} after {moment:.3f} s, {world}, {way}, heartbeat {silent}"
    with Crew(
        WORLD,
        "streams",
        world,
        way,
        folder=folder,
        warm=True,
        agent=agent,
        WEAVE_LINK_HEARTBEAT=silent,
        WEAVE_LINK_TIMEOUT=5,
    ) as crew:
        for rank in range(WORLD):
            crew.said(rank, "begins")
        time.sleep(moment)  # any will do; nothing hangs on which
        crew.ranks[victim].signal(signal.SIGKILL)
        survivors = [rank for rank in range(WORLD) if rank != victim]
        try:
            said = crew.ends(*survivors, patience=60.0)
            raised = re.findall(r"^raised (\w+): ", said, re.MULTILINE)
            assert len(raised) == len(survivors), crew.outputs()
        except AssertionError as error:
            raise AssertionError(f"{what}: {error}") from None
        return raised


def main() -> None:
    count, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    raised: Counter[str] = Counter()
    wrong = 0
    for turn in range(count):
        with tempfile.TemporaryDirectory() as folder:
            try:
                raised.update(kill_one(random.Random(f"{seed} {turn}"), Path(folder)))
            except AssertionError as error:
                wrong += 1
                print(f"{turn}: {error}", flush=True)
        if (turn + 1) % 20 == 0:
            print(f"{turn + 1} kills, {wrong} wrong; survivors raised {dict(raised)}", flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
