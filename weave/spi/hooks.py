"""The hooks: everything that can be added to weave, in one class. Pluggy registers; the engine runs.

Hooks are synchronous and return records; the objects in the records may have async methods. Entry-point group
`weave.plugins`; a hook's name begins with `weave_`. Each is asked once when a set of plugins is put together, but
`weave_observer`, which is asked at each run.
"""

from __future__ import annotations

from collections.abc import Iterable

import pluggy

from weave.spi.events import Observer, RunInfo
from weave.spi.records import AdapterDef, Command, ReducerDef, TargetType, TransportType

hookspec = pluggy.HookspecMarker("weave")
hookimpl = pluggy.HookimplMarker("weave")


class WeaveSpec:
    """The hooks that a plugin may implement."""

    @hookspec
    def weave_target_types(self) -> Iterable[TargetType]:  # type: ignore[empty-body]
        """Kinds of target, each with its executor.

        ```python
        from weave import TargetWithOutput
        from weave.plugins import TargetType, hookimpl

        class Clock(TargetWithOutput):
            name = "clock"

        class ClockExecutor:
            def fire(self, firing):
                firing.deliver("", 12)

        @hookimpl
        def weave_target_types():
            return [TargetType(name="clock", target=Clock, executor=ClockExecutor())]
        ```
        """

    @hookspec
    def weave_reducers(self) -> Iterable[ReducerDef]:  # type: ignore[empty-body]
        """Reducers that can be asked for by name: `target.output("x", reducer="longest")`.

        ```python
        from weave.plugins import ReducerDef, hookimpl

        def longest(acc, value, original, index, values):
            return value if index == 0 or len(value) > len(acc) else acc

        @hookimpl
        def weave_reducers():
            return [ReducerDef(name="longest", fn=longest, kind="output")]
        ```
        """

    @hookspec
    def weave_adapters(self) -> Iterable[AdapterDef]:  # type: ignore[empty-body]
        """Adapters that can be asked for by name: `target.output("x", adapter="halve")`.

        ```python
        from weave.plugins import AdapterDef, hookimpl

        @hookimpl
        def weave_adapters():
            return [AdapterDef(name="halve", fn=lambda value: value / 2, kind="output")]
        ```
        """

    @hookspec
    def weave_transports(self) -> Iterable[TransportType]:  # type: ignore[empty-body]
        """Ways between ranks, by scheme: `RemoteTarget(1, transport="calls")`.

        ```python
        import threading

        from weave.plugins import TransportType, hookimpl

        ends, early, lock = {}, {}, threading.Lock()

        class Calls:
            # Ranks that are threads call one another.

            def __init__(self, meeting):
                self.rank, self.closed = meeting.rank, False

            def start(self, hears):
                self.hears = hears
                with lock:
                    ends[self.rank] = self
                    messages = early.pop(self.rank, [])
                for message in messages:
                    hears.came(*message)

            def send(self, peer, frames, *, urgent=False, gone=None):
                message = self.rank, [bytearray(frame) for frame in frames]
                with lock:
                    end = ends.get(peer)
                    if end is None:
                        early.setdefault(peer, []).append(message)
                if end is not None and not end.closed:
                    end.hears.came(*message)
                if gone is not None:
                    gone()

            def close(self, linger):
                self.closed = True

        @hookimpl
        def weave_transports():
            return [TransportType(scheme="calls", connect=Calls)]
        ```
        """

    @hookspec
    def weave_commands(self) -> Iterable[Command]:  # type: ignore[empty-body]
        """Subcommands of `weave`: `weave hello --loud`.

        ```python
        from weave.plugins import Command, hookimpl

        def add_arguments(parser):
            parser.add_argument("--loud", action="store_true")

        def run(args):
            print("HELLO" if args.loud else "hello")
            return 0

        @hookimpl
        def weave_commands():
            return [Command(name="hello", about="say it", add_arguments=add_arguments, run=run)]
        ```
        """

    @hookspec
    def weave_observer(self, run: RunInfo) -> Observer | None:
        """Somebody who hears of this run's events, or `None`. Asked at the start of every run.

        ```python
        from weave.plugins import Observer, hookimpl

        class Loud(Observer):
            def node_finished(self, event):
                print(event.node, event.duration_ms, "ms")

        @hookimpl
        def weave_observer(run):
            return Loud()
        ```
        """
