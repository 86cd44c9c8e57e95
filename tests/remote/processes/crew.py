"""Ranks in processes of their own. A program is a plain script; it is started on N ranks as torchrun starts one.

Two ways: `Crew(...)` starts interpreters, as `weave run-ranks` does. `Crew(..., warm=True)` forks each rank from a server
that has torch imported, where a program is about what ranks do and not about how one begins: an import costs seconds.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from torch.distributed import TCPStore

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PATIENCE = 120.0  # a machine that is busy with something else is no failure

_WARM = multiprocessing.get_context("forkserver")
_WARM.set_forkserver_preload(["tests.remote.processes.warm"])


class Crew:
    """The ranks of one program. Leaving the `with` ends whoever is left.

    `program`: one of `programs/` by name, or a file. `agent`: the store of torch.distributed lives in this process, as
    under torchrun, and so outlives any rank.
    """

    def __init__(
        self,
        world: int,
        program: str | Path,
        *arguments: str,
        folder: Path,
        warm: bool = False,
        agent: bool = True,
        **environ: Any,
    ) -> None:
        self.world = world
        self._folder = folder
        self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) if agent else None
        port = free_port() if self._store is None else self._store.port
        base = {
            "WORLD_SIZE": str(world),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
            "WEAVE_LINK_TIMEOUT": str(PATIENCE),
            "PYTHONPATH": str(ROOT),
            **({} if self._store is None else {"TORCHELASTIC_USE_AGENT_STORE": "True"}),
            **{key: str(value) for key, value in environ.items()},
        }
        file = HERE / "programs" / f"{program}.py" if isinstance(program, str) else program
        self.ranks = [
            (_Forked if warm else _Started)(folder / f"out{rank}", file, arguments, {**base, "RANK": str(rank)})
            for rank in range(world)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        for rank in self.ranks:
            rank.kill()
        for rank in self.ranks:
            rank.wait(PATIENCE)

    def output(self, rank: int) -> str:
        """What a rank has printed up to now."""
        file = self._folder / f"out{rank}"
        return file.read_text() if file.exists() else ""

    def outputs(self) -> str:
        """All of it, for an assertion."""
        said = [
            f"--- rank {rank}: status {process.status}\n{self.output(rank)[-6000:]}"
            for rank, process in enumerate(self.ranks)
        ]
        return "\n".join(said)

    def said(self, rank: int, word: str) -> None:
        """Wait until a rank has printed this."""
        end = time.monotonic() + PATIENCE
        while word not in self.output(rank):
            ended = self.ranks[rank].wait(0.02)
            if ended is not None and word not in self.output(rank):
                raise AssertionError(f"rank {rank} ended without {word!r}\n{self.outputs()}")
            if time.monotonic() > end:
                raise AssertionError(f"rank {rank} does not say {word!r}\n{self.outputs()}")

    def ends(self, *ranks: int, patience: float = PATIENCE) -> str:
        """Wait until these ranks (all, by default) have ended well. Returns what they printed."""
        due = list(ranks or range(self.world))
        end = time.monotonic() + patience
        left = list(due)
        while left:
            left = [rank for rank in left if self.ranks[rank].wait(0.02) is None]
            failed = [rank for rank in due if self.ranks[rank].status not in (None, 0)]
            if failed or (left and time.monotonic() > end):
                raise AssertionError(f"ranks {failed} failed, {left} are left\n{self.outputs()}")
        return "".join(self.output(rank) for rank in due)


class _Started:
    """An interpreter."""

    def __init__(self, out: Path, program: Path, arguments: Sequence[str], environ: Mapping[str, str]) -> None:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("WEAVE_")}
        with out.open("wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-u", str(program), *arguments],
                cwd=out.parent,
                env={**kept, **environ},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        self.pid = self._process.pid

    @property
    def status(self) -> int | None:
        return self._process.poll()

    def wait(self, seconds: float) -> int | None:
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()


class _Forked:
    """A fork of the warm server."""

    def __init__(self, out: Path, program: Path, arguments: Sequence[str], environ: Mapping[str, str]) -> None:
        self._process = _WARM.Process(
            target=_run, args=(str(out), str(program), list(arguments), dict(environ)), daemon=True
        )
        self._process.start()
        self.pid = self._process.pid or 0

    @property
    def status(self) -> int | None:
        return self._process.exitcode

    def wait(self, seconds: float) -> int | None:
        self._process.join(seconds)
        return self._process.exitcode

    def signal(self, number: int) -> None:
        if self._process.exitcode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)


def _run(out: str, program: str, arguments: list[str], environ: dict[str, str]) -> None:
    """A rank's life, in a fork."""
    file = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    for key in [key for key in os.environ if key.startswith("WEAVE_")]:
        del os.environ[key]
    os.environ.update(environ)
    os.chdir(os.path.dirname(out))
    sys.argv = [program, *arguments]
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    runpy.run_path(program, run_name="__main__")
    atexit._run_exitfuncs()  # a fork of multiprocessing's would leave them out


def free_port() -> int:
    """One that nobody listened at just now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
