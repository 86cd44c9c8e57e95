"""Who listens to runs, and the thread that tells them.

A run that somebody listens to appends to its recording; the scribe, one daemon thread a process, takes what has come
every tenth of a second, makes lines of it and hands them to the listeners. So nothing a listener does is in a run's way:
it may write to a slow disk, it may raise.

A listener that raises is reported once, by a warning of the logger `weave`, and hears no more.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Sequence
from typing import Any, Self

from weave.observe.recording import Recording
from weave.observe.rendering import Line, Rendering, ThreadNames
from weave.spi.events import RunInfo

log = logging.getLogger("weave")
log.addHandler(logging.NullHandler())

EVERY = 0.1  # seconds


class Listener:
    """Hears of runs off their path, as lines: one dict an event (`weave.observe.EVENTS` says what is in it).

    `with listener:` it hears of every run of the process that begins meanwhile; in `RunOptions(observers=[listener])`, of
    the runs of that graph. Override `heard`.
    """

    def heard(self, run: RunInfo, lines: Sequence[Line]) -> None:
        """Some of a run's lines, in order. In the scribe's thread, one call at a time."""

    def close(self) -> None:
        """No more will come."""

    def __enter__(self) -> Self:
        scribe.listen(self)
        return self

    def __exit__(self, *raised: Any) -> None:
        scribe.leave(self)

    def __deepcopy__(self, memo: Any) -> Self:
        """Itself: who listens to a graph listens to its copies, and there is one of it."""
        return self


class Scribe:
    """The process's scribe."""

    def __init__(self) -> None:
        self.everywhere: tuple[Listener, ...] = ()
        self._reset()
        atexit.register(self.flush)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def _reset(self) -> None:
        self._lock = threading.Lock()  # of what follows
        self._telling = threading.Lock()  # one thread tells at a time
        self._teller = 0
        self._open: dict[int, tuple[Recording, tuple[Listener, ...]]] = {}
        self._gone: set[int] = set()
        self._failed: list[Listener] = []  # kept, so that no other takes its id
        self._wanted = threading.Event()
        self._thread: threading.Thread | None = None
        self._names = ThreadNames()

    def _forked(self) -> None:
        """The thread has not come along, and the recordings that were open are the parent's to tell."""
        self._reset()

    # --- listeners ---

    def listen(self, listener: Listener) -> None:
        """Every run that begins from now on is told to this one too."""
        with self._lock:
            self.everywhere = (*self.everywhere, listener)
            self._gone.discard(id(listener))

    def leave(self, listener: Listener) -> None:
        """Tell it what is left, and no more."""
        self.flush()
        with self._lock:
            self.everywhere = tuple(known for known in self.everywhere if known is not listener)
        if id(listener) not in self._gone:
            self._guarded(listener, listener.close)

    # --- recordings ---

    def open(self, recording: Recording, listeners: tuple[Listener, ...]) -> None:
        """A run begins."""
        with self._lock:
            self._open[id(recording)] = (recording, listeners)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, name="weave scribe", daemon=True)
                self._thread.start()
        if not self._wanted.is_set():
            self._wanted.set()

    def _work(self) -> None:
        while True:
            self._wanted.wait()
            threading.Event().wait(EVERY)
            self._wanted.clear()
            self.flush()
            if self._open:
                self._wanted.set()

    def flush(self) -> None:
        """Tell everything that was said until now, in this thread."""
        if self._teller == threading.get_ident():  # a listener that asks for it: it is being told just now
            return
        with self._telling:
            self._teller = threading.get_ident()
            try:
                with self._lock:
                    known = list(self._open.items())
                for key, (recording, listeners) in known:
                    if self._tell(recording, listeners):
                        with self._lock:
                            self._open.pop(key, None)
            finally:
                self._teller = 0

    def _tell(self, recording: Recording, listeners: tuple[Listener, ...]) -> bool:
        """What a recording has to say; returns whether that was all."""
        try:
            if recording.rendering is None:
                recording.rendering = Rendering(recording, self._names)
            lines = recording.rendering.drain()
        except Exception as error:  # a bug of ours, which must not end the thread
            log.warning("run %s could not be recorded: %r", recording.info.run, error, exc_info=error)
            return True
        for listener in listeners if lines else ():
            if id(listener) not in self._gone:
                self._guarded(listener, listener.heard, recording.info, lines, recording=recording)
        return bool(recording.rendering.over)

    def _guarded(self, listener: Listener, tell: Any, *args: Any, recording: Recording | None = None) -> None:
        try:
            if recording is None or recording.context is None:
                tell(*args)
            else:
                recording.context.run(tell, *args)  # so that what a logger merges is the caller's
        except Exception as error:
            with self._lock:
                self._gone.add(id(listener))
                self._failed.append(listener)
                self.everywhere = tuple(known for known in self.everywhere if known is not listener)
            log.warning("%r raised and hears no more of any run: %r", listener, error, exc_info=error)
            if tell != listener.close:
                self._guarded(listener, listener.close)


scribe = Scribe()


def flush() -> None:
    """Have everything written and logged that runs have said until now; the scribe does it ten times a second."""
    scribe.flush()
