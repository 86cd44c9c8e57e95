"""A passage: one forward of one module, with what the graph captures and overrides inside it.

All state of a run is here, none in the module or the table. Where several passages are open in one context (a stitched
run inside a target's forward), each sees the calls of modules in its own tree; the inner one is nearer to the caller.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeAlias

import torch

from weave.device.versions import Mark, mark
from weave.errors import ChangedInPlaceException, CheckpointException, StitchedModuleException
from weave.graph.adapters import EachCall
from weave.graph.args import InputArgs
from weave.graph.descriptors import IODescriptor, port_text
from weave.passage.checkpointing import checkpointing
from weave.passage.fake import call_key, holds_fakes, new_mode, rehome, without_fakes
from weave.passage.missed import missed
from weave.passage.regions import survey
from weave.passage.table import Capture, PortTable, Station
from weave.passage.touch import Touch, current, leave_to_python, onward, release, touch_all
from weave.spi.executor import Firing

Base: TypeAlias = Callable[..., Any] | None  # what to call in the end, where it is not the module as it is


class Leave(BaseException):
    """Everything wanted was captured. No `Exception`, so model code that catches those can't swallow it."""

    def __init__(self, passage: Passage) -> None:
        super().__init__("a stitched forward is being left early; let this pass")
        self.passage = passage


class _Held:
    """A capture that is only known at the end (`call="last"`, `"all"`): what came by so far."""

    __slots__ = ("adapted", "marks", "values")

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.adapted: list[list[Any]] = []  # by call, by exit: where the adapter runs at each call
        self.marks: list[Mark | None] = []


class Passage:
    """One forward of `table.root`. Made for one `run()`."""

    def __init__(self, table: PortTable, firing: Firing) -> None:
        self.table = table
        self.firing = firing
        self.outer: Passage | None = None
        self.stations = table.stations
        self.calls: list[int] = []
        self.captured = [False] * len(table.captures)
        self.applied = set[int]()
        self.left = sum(not c.held for c in table.captures)
        self.held: dict[int, _Held] = {c.place: _Held() for c in table.captures if c.held}
        self.may_leave = table.early_exit
        self.left_early = False  # also where model code swallowed the signal and went on to its end
        self.running = False
        self.finishing = 0  # wrappers on the stack that must finish
        self.frame: FrameType | None = None
        self.backward = -1
        self.grad = True
        self.mode: Any = None

    def run(self) -> None:
        """Call the module with the run's arguments. Every capture has been delivered when this returns.

        Raises what the module raises; `PortNotReachedException`, `CheckpointException`, `ChangedInPlaceException`.
        """
        table, firing = self.table, self.firing
        modules = self._survey()
        self.calls = [0] * len(self.stations)
        args, kwargs = firing.args, firing.kwargs
        if holds_fakes([args, kwargs]):
            args, kwargs = self._own((args, kwargs))
        self.grad = torch.is_grad_enabled()
        self.backward = torch._C._current_graph_task_id()
        self.outer = current.get()
        self.frame = sys._getframe()
        touches = touch_all(modules)
        token = current.set(self)
        self.running = True
        finished = False
        try:
            table.root(*args, **kwargs)
            finished = True
        except Leave as signal:
            if signal.passage is not self:
                raise
        finally:
            self.running = False
            current.reset(token)
            release(touches)
            self.frame = None
            # A forward that toggled the grad mode by hand, and was left before it toggled it back.
            if torch.is_grad_enabled() is not self.grad:
                torch.set_grad_enabled(self.grad)
        self.firing.settled()
        self._deliver_held()
        if finished and not self.left_early:
            missed(self)

    def is_open(self) -> bool:
        """Whether calls made now belong to this forward.

        Not those of a backward inside it, which recomputes on its own account; nor those made later in a context that
        was copied while the forward ran.
        """
        return self.running and torch._C._current_graph_task_id() == self.backward

    def call(self, station: Station, touch: Touch, args: Any, kwargs: Any, base: Base) -> Any:
        """A call of a touched module: override, capture, run or skip, leave."""
        number = self.calls[station.place]
        self.calls[station.place] = number + 1
        if not self.finishing:
            self.firing.check_cancelled()
        into = station.into and station.into.at(number)
        out_of = station.out_of and station.out_of.at(number)
        if (self.grad or torch.is_grad_enabled()) and (into or out_of or station.entering or station.leaving):
            self._check_checkpointing(station, bool(into or out_of))
        if into:
            self._applied(into)
            new = self._own(self.firing.inputs(into, original=InputArgs.of(args, kwargs)))
            args, kwargs = new.args, new.kwargs
        if station.entering:
            self._capture(station.entering, number, lambda: without_fakes(InputArgs.of(args, dict(kwargs))))
            self._settle()
        if out_of and not any(e.requires_original for e in out_of.edges):
            self._applied(out_of)
            value = self._own(self.firing.inputs(out_of, original=None))
        else:
            value = self._through(station, touch, args, kwargs, base)
            if out_of:
                self._applied(out_of)
                value = self._own(self.firing.inputs(out_of, original=value))
        over = station.module is self.table.root and not number  # then there is nothing to leave
        if station.leaving:
            if over:
                self.firing.settled()
            self._capture(station.leaving, number, lambda: value)
        if not over and (station.leaving or station.finishing):
            self._settle()
        return value

    def _through(self, station: Station, touch: Touch, args: Any, kwargs: Any, base: Base) -> Any:
        """Run the module itself (and whatever outer passages want of it)."""
        if station.cached:
            return self._cached(station, touch, args, kwargs, base)
        if station.finishing:
            self.finishing += 1
            try:
                return self._onward(station, touch, args, kwargs, base)
            finally:
                self.finishing -= 1
        return self._onward(station, touch, args, kwargs, base)

    def _onward(self, station: Station, touch: Touch, args: Any, kwargs: Any, base: Base) -> Any:
        if station.eager and base is None:
            inner = station.module._modules.get("_orig_mod")
            base = station.module._call_impl if inner is None else inner
        return onward(self.outer, touch, args, kwargs, base)

    def _cached(self, station: Station, touch: Touch, args: Any, kwargs: Any, base: Base) -> Any:
        key = call_key(station.place, station.module, args, kwargs)
        if key is None:
            return self._onward(station, touch, args, kwargs, base)
        cache = self.table.cache
        if not holds_fakes([args, kwargs]):
            value = self._onward(station, touch, args, kwargs, base)
            cache.keep(key, value, called_with_fakes=False)
            return value
        with cache.one_at_a_time(key):
            known, value = cache.answer(key, self._mode())
            if not known:
                value = self._onward(station, touch, args, kwargs, base)
                cache.keep(key, value, called_with_fakes=True)
            return value

    def _capture(self, captures: tuple[Capture, ...], number: int, read: Any) -> None:
        for capture in captures:
            if capture.held:
                self._hold(capture, read())
            elif capture.call == number:
                value = read()
                self._check_real(capture, value)
                self.captured[capture.place] = True
                self.left -= 1
                self.firing.deliver(capture.port, value)

    def _settle(self) -> None:
        """Leave the forward if nothing more is wanted of it. Once: code that swallows the signal goes on undisturbed."""
        if self.left == 0 and self.may_leave and not self.finishing:
            self.may_leave = False
            self.left_early = True
            raise Leave(self)

    def _hold(self, capture: Capture, value: Any) -> None:
        self._check_real(capture, value)
        held = self.held[capture.place]
        if capture.call == "last":
            held.values.clear()
            held.adapted.clear()
            held.marks.clear()
        adapted = [e.adapter(value) if isinstance(e.adapter, EachCall) else value for e in capture.port.exits]
        held.values.append(value)
        held.adapted.append(adapted)
        raw = any(not isinstance(e.adapter, EachCall) for e in capture.port.exits)
        held.marks.append(mark(value) if raw else None)

    def _deliver_held(self) -> None:
        for capture in self.table.captures:
            held = self.held.get(capture.place)
            if held is None or not held.values:
                continue
            if any(m is not None and m.changed() for m in held.marks):
                raise changed_by_producer(self.table.node, capture.port.exits[0].port)
            self.captured[capture.place] = True
            for place, way in enumerate(capture.port.exits):
                each = isinstance(way.adapter, EachCall)
                values = [a[place] for a in held.adapted] if each else held.values
                port = capture.port._replace(exits=(way._replace(adapter=None) if each else way,))
                self.firing.deliver(port, list(values) if capture.call == "all" else values[-1])
        self.held.clear()

    def _applied(self, port: Any) -> None:
        self.applied.update(edge.slot for edge in port.edges)

    def _mode(self) -> Any:
        if self.mode is None:
            self.mode = new_mode()
        return self.mode

    def _own(self, value: Any) -> Any:
        return rehome(value, self._mode()) if holds_fakes(value) else value

    def _check_real(self, capture: Capture, value: Any) -> None:
        if capture.port.kind == "output" and holds_fakes(value):
            said = port_text(capture.port.exits[0].port, self.table.node)
            raise StitchedModuleException(
                f"{said} gave a fake tensor (no data): nothing in front of it got real values. Override the input of a "
                "submodule on the way to it with real ones, or call the graph with a real input instead of fake_tensor(...)"
            )

    def _check_checkpointing(self, station: Station, overridden: bool) -> None:
        kind = checkpointing(self.frame)
        if not kind or (kind == "plain" and not overridden):
            return
        over = [o for o in (station.into, station.out_of) if o is not None]
        port = over[0].port.edges[0].port if over else (*station.entering, *station.leaving)[0].port.exits[0].port
        said = port_text(port, self.table.node)
        raise CheckpointException(
            f"{said} is reached under {'re-entrant ' if kind == 'reentrant' else ''}activation checkpointing while gradients "
            f"are wanted: backward runs this part again, without {'the override' if over else 'the capture'}, and the "
            "gradients would be silently wrong. Turn checkpointing off for this part, or run under torch.no_grad()"
            + ("" if over else "; or use checkpoint(..., use_reentrant=False), under which captures are right"),
            node=self.table.node,
            port=said,
        )

    def _survey(self) -> list[Any]:
        """The modules to touch; stations for wrappers and compiled regions are added to a copy of the table's."""
        found = survey(self.table.root, self.table.routes)
        if found:
            stations = dict(self.table.stations)
            for inner, outer in found.stands_for.items():
                stations[id(outer)] = stations.pop(inner)._replace(module=outer)
            for key, module in {**found.finishing, **found.compiled}.items():
                station = stations.get(key) or Station(len(stations), module, "")
                stations[key] = station._replace(finishing=key in found.finishing, eager=key in found.compiled)
            self.stations = stations
        return [station.module for station in self.stations.values()]


leave_to_python(Passage.call, and_what_it_calls=True)


def changed_by_producer(node: str, port: IODescriptor) -> ChangedInPlaceException:
    """The error for a captured tensor that its own module changed later in the same forward."""
    said = port_text(port, node)
    return ChangedInPlaceException(
        f"{said} was changed in place by {node!r} itself after it had been captured (an in-place activation such as "
        "ReLU(inplace=True) behind it, say), so what was captured is not what the port gave. Keep a copy: "
        f'give the port adapter="clone"',
        node=node,
        port=said,
        suspects=(node,),
    )
