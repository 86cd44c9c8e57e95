"""`Recorder`: runs into a JSONL file. `WEAVE_TRACE=run.jsonl` makes one for the whole process."""

from __future__ import annotations

import json
import os
import platform
import stat
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import weave
from weave.observe.recording import clock
from weave.observe.rendering import Line, graph_of
from weave.observe.scribe import Listener
from weave.observe.trace import FORMAT
from weave.spi.events import RunInfo

try:
    import fcntl
except ImportError:  # not on Windows: there two processes of one name overwrite each other
    fcntl = None  # type: ignore[assignment]


class Recorder(Listener):
    """Writes runs to a file, a JSON object a line; `weave trace` reads it.

    Lines reach the file ten times a second at the latest, so what a killed program leaves can be read. Under several
    ranks (torch.distributed, or `RANK` in the environment) `run.jsonl` becomes `run.rank0.jsonl`; where another process
    writes to that file just now (a DataLoader's worker), its number is put in too.

    Args:
        path: the file; it is begun anew, when the first run is recorded.

    Raises nothing while runs go on: a disk that is full is reported once, by a warning of the logger `weave`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file: IO[bytes] | None = None
        self.path = Path(path)
        self._process = 0
        self._began_ns, self._began_epoch_ns = clock(), time.time_ns()
        self._graphs: set[str] = set()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Recorder({str(self.path)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """For graphs that are pickled with their options; who unpickles it records anew."""
        return Recorder, (self.path,)

    def heard(self, run: RunInfo, lines: Sequence[Line]) -> None:
        """Write them."""
        with self._lock:
            if self._file is None or self._process != os.getpid():
                self._begin()
            graph = graph_of(run.plan)
            said: list[Any] = []
            if graph.id not in self._graphs:
                self._graphs.add(graph.id)
                said.append({"event": "graph", "graph": graph.id, "units": graph.units, "stitches": graph.stitches})
            said += [self._on_our_clock(line) for line in lines]
            self._write(said)

    def close(self) -> None:
        """Close the file. It is complete without it."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def __del__(self) -> None:
        """One in a graph's options is closed by nobody."""
        if self._file is not None:
            self._file.close()

    def _on_our_clock(self, line: Line) -> Line:
        moved = {**line, "time_ns": line["time_ns"] - self._began_ns}
        if "outputs" in line:
            moved["outputs"] = [{**out, "time_ns": out["time_ns"] - self._began_ns} for out in line["outputs"]]
        return moved

    def _write(self, said: Sequence[Any]) -> None:
        assert self._file is not None
        text = "".join(json.dumps(line, ensure_ascii=False, default=str, separators=(",", ":")) + "\n" for line in said)
        self._file.write(text.encode("utf-8", "backslashreplace"))

    def _begin(self) -> None:
        rank = rank_here()
        if self._file is not None:  # forked: that file is the parent's
            self._file.close()
            self.path = _with(self.path, f"pid{os.getpid()}")
        self.path, self._file = _claimed(self.path if rank is None else _with(self.path, f"rank{rank}"))
        self._process = os.getpid()
        self._graphs = set()
        header = {
            "event": "trace.started",
            "format": FORMAT,
            "weave": weave.__version__,
            "pid": os.getpid(),
            "rank": rank,
            "began_epoch_ns": self._began_epoch_ns,
            "python": platform.python_version(),
            "torch": getattr(sys.modules.get("torch"), "__version__", ""),
            "program": os.path.basename(sys.argv[0]) if sys.argv else "",
        }
        self._write([header])


def _claimed(path: Path) -> tuple[Path, IO[bytes]]:
    """The file, begun anew, or one with this process's number in its name where another process writes to that."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for candidate in (path, _with(path, f"pid{os.getpid()}")):
        file = open(candidate, "ab", buffering=0)  # noqa: SIM115 - it stays open as long as the recorder is
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if candidate is path:
                file.close()
                continue
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.truncate(0)
        return candidate, file
    raise AssertionError("unreachable")  # the second candidate is always taken


def _with(path: Path, part: str) -> Path:
    return path if f".{part}." in f"{path.name}." else path.with_name(f"{path.stem}.{part}{path.suffix}")


def rank_here() -> int | None:
    """This process's rank; `None` where it is the only one."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    rank = os.environ.get("RANK", "")
    return int(rank) if rank.isdigit() and os.environ.get("WORLD_SIZE", "1") != "1" else None
