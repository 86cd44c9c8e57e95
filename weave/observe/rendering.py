"""From a recording's raw entries to lines: one dict an event, in the order in which things happened to be told."""

from __future__ import annotations

import hashlib
import json
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from weave.graph.descriptors import IODescriptor
from weave.graph.plan import Plan
from weave.graph.render import what
from weave.observe.describe import size, text
from weave.observe.figures import figures
from weave.observe.recording import ENDED, EVENT, FINISHED, GIVEN, RAISED, STARTED, Recording
from weave.observe.trace import Graph, RunTrace, Stitch, UnitInfo, take

Line = dict[str, Any]


def port_said(port: IODescriptor) -> str:
    """A port without its node: `output('layers.3')`."""
    name = repr(port.name) if port.name else ""
    call = "" if port.call is None else f"{', ' if name else ''}call={port.call!r}"
    return f"{port.kind}({name}{call})"


_graphs: dict[int, tuple[weakref.ref[Plan], Graph]] = {}


def graph_of(plan: Plan) -> Graph:
    """A plan as traces know it. Kept as long as the plan is."""
    known = _graphs.get(id(plan))
    if known is not None and known[0]() is plan:
        return known[1]
    units = tuple(UnitInfo(unit.node, what(unit.target), unit.role) for unit in plan.units)
    stitches = tuple(
        Stitch(
            plan.producers[edge.slot],
            plan.consumers[edge.slot],
            port_said(edge.stitch.source_descriptor),
            port_said(edge.port),
        )
        for edge in plan.edges
    )
    content = json.dumps([units, stitches]).encode()
    graph = Graph(hashlib.sha256(content).hexdigest()[:12], units, stitches)
    key = id(plan)
    _graphs[key] = (weakref.ref(plan, lambda _: _graphs.pop(key, None)), graph)
    return graph


class Readiness:
    """Which units became ready as values were handed on, derived from the plan: the engine doesn't count it for us."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._left = plan.in_degrees()
        self._given = bytearray(len(plan.edges))

    def at_start(self) -> Iterator[int]:
        """The caller's values are there: units that wait for nothing else."""
        yield from (index for index, left in enumerate(self._left) if not left)
        for way in self._plan.given:
            yield from self.handed_on(way.slots)

    def handed_on(self, slots: tuple[int, ...]) -> Iterator[int]:
        """A value is in these slots."""
        for slot in slots:
            if not self._given[slot]:
                self._given[slot] = 1
                consumer = self._plan.consumers[slot]
                if consumer >= 0:
                    self._left[consumer] -= 1
                    if not self._left[consumer]:
                        yield consumer

    def ended(self, unit: int) -> Iterator[int]:
        """A unit has returned: what it has not handed on yet is there too."""
        for way in self._plan.units[unit].exits:
            yield from self.handed_on(way.slots)


class Rendering:
    """One recording's lines. `base_ns`: what their times count from."""

    def __init__(self, recording: Recording, thread_name: Callable[[int], str]) -> None:
        self._recording = recording
        self._info = info = recording.info
        self._units = info.plan.units
        self._thread_name = thread_name
        self._ready = Readiness(info.plan)
        self._ticks = 0
        self._since: dict[int, tuple[int, str]] = {}
        self._outputs: dict[int, list[Line]] = {}
        self.over = False
        self.graph = graph_of(info.plan)
        self.trace = RunTrace(info.run, None, self.graph, info.driver, info.time_ns)
        self._begun = False

    def drain(self) -> list[Line]:
        """Lines for what was said since. Times are those of the run's clock."""
        lines: list[Line] = []
        if not self._begun:
            self._begun = True
            started = self._line("run.started", self._info.time_ns, graph=self.graph.id, driver=self._info.driver)
            lines.append(started)
            lines += self._became(self._ready.at_start(), self._info.time_ns, "")
        entries = self._recording.entries
        while entries:
            entry = entries.popleft()
            lines += self._tick(entry) if type(entry) is int else self._entry(entry)
        for line in lines:
            if line["event"] != "run.started":
                take(self.trace, line, 0)
        if self.over and lines:
            lines[-1].update(self._figures())
        return lines

    def _line(self, event: str, time_ns: int, **facts: Any) -> Line:
        return {"event": event, "run": self._info.run, "time_ns": time_ns, **facts}

    def _node(self, event: str, time_ns: int, unit: int, **facts: Any) -> Line:
        return self._line(event, time_ns, node=self._units[unit].node, unit=unit, **facts)

    def _became(self, units: Iterator[int], time_ns: int, by: str) -> Iterator[Line]:
        for unit in units:
            yield self._node("node.ready", time_ns, unit, **({"by": by} if by else {}))

    # --- entries ---

    def _tick(self, time_ns: int) -> Iterator[Line]:
        unit = self._ticks
        self._ticks += 1
        if unit:
            yield from self._finished(unit - 1, time_ns, False)
        if unit < len(self._units):
            yield self._started(unit, time_ns, self._recording.thread)

    def _entry(self, entry: tuple[Any, ...]) -> Iterator[Line]:
        tag = entry[0]
        if tag == STARTED:
            _, unit, time_ns, ident = entry
            yield self._started(unit, time_ns, self._thread_name(ident))
        elif tag == FINISHED:
            _, unit, time_ns, awaited, facts = entry
            if facts is not None:
                for way in self._units[unit].exits:
                    self._gave(unit, port_said(way.port), time_ns, facts)
            yield from self._finished(unit, time_ns, awaited)
        elif tag == GIVEN:
            _, way, time_ns, facts = entry
            unit = self._info.plan.producers[way.slots[0]]
            self._gave(unit, port_said(way.port), time_ns, facts)
            yield from self._became(self._ready.handed_on(way.slots), time_ns, self._units[unit].node)
        elif tag == RAISED:
            yield from self._raised(*entry[1:])
        elif tag == EVENT:
            _, name, time_ns, facts = entry
            yield self._line(name, time_ns, **facts)
        elif tag == ENDED:
            yield from self._ended(*entry[1:])

    def _started(self, unit: int, time_ns: int, thread: str) -> Line:
        self._since[unit] = (time_ns, thread)
        return self._node("node.started", time_ns, unit, thread=thread)

    def _gave(self, unit: int, port: str, time_ns: int, facts: Any) -> None:
        output = {"port": port, "time_ns": time_ns, "value": text(facts), "bytes": size(facts)}
        self._outputs.setdefault(unit, []).append(output)

    def _over(self, unit: int, time_ns: int) -> Line:
        since, thread = self._since.pop(unit, (time_ns, ""))
        return {"thread": thread, "duration_ms": (time_ns - since) / 1e6}

    def _finished(self, unit: int, time_ns: int, awaited: bool) -> Iterator[Line]:
        facts = self._over(unit, time_ns)
        if awaited:
            facts["awaited"] = True
        outputs = self._outputs.pop(unit, None)
        if outputs:
            facts["outputs"] = outputs
        yield self._node("node.finished", time_ns, unit, **facts)
        yield from self._became(self._ready.ended(unit), time_ns, self._units[unit].node)

    def _raised(self, unit: int, time_ns: int, awaited: bool, status: str, kind: str, message: str) -> Iterator[Line]:
        facts = self._over(unit, time_ns)
        if awaited:
            facts["awaited"] = True
        if status == "failed":
            facts.update(error_type=kind, error=message)
        yield self._node(f"node.{status}", time_ns, unit, **facts)

    def _ended(self, time_ns: int, status: str, kind: str, message: str) -> Iterator[Line]:
        if self._ticks and self._ticks <= len(self._units) and status != "ok":  # the inline driver was in a unit
            yield from self._raised(self._ticks - 1, time_ns, False, status, kind, message)
        facts: Line = {"status": status, "duration_ms": (time_ns - self._info.time_ns) / 1e6}
        if status == "failed":
            facts.update(error_type=kind, error=message)
        self.over = True
        yield self._line("run.finished", time_ns, **facts)

    def _figures(self) -> Line:
        found = figures(self.trace)
        said: Line = {
            "nodes": found.nodes,
            "bytes": found.bytes,
            "critical_path_ms": found.critical_path_ns / 1e6,
        }
        if found.overlap_pct is not None:
            said["overlap_pct"] = round(found.overlap_pct, 3)
        return said


class ThreadNames:
    """What threads are called in events. anyio calls all of its workers the same."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._counts: dict[str, int] = {}

    def __call__(self, ident: int) -> str:
        """The name of a thread."""
        name = self._names.get(ident)
        if name is None:
            # One that has gone meanwhile was a worker: they end with their loop.
            name = next((t.name for t in threading.enumerate() if t.ident == ident), "worker")
            self._names[ident] = name = self.distinct(name)
        return name

    def distinct(self, name: str) -> str:
        """That name, numbered from the second on; anyio's workers from the first."""
        if name.startswith(("AnyIO worker", "Trio thread")):
            name = "worker"
        count = self._counts[name] = self._counts.get(name, 0) + 1
        return f"{name} {count}" if name == "worker" or count > 1 else name
