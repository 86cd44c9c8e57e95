"""A trace in numbers: a row a run, a row a node over all runs. What `weave trace summary` prints."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from weave.observe.figures import Figures, figures, parts
from weave.observe.trace import RunTrace


class RunRow(NamedTuple):
    """A run and its figures. `path`: the nodes of its critical path, and what each adds to that, in nanoseconds."""

    run: RunTrace
    figures: Figures
    path: tuple[tuple[str, int], ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON, units in the names. Times count from the trace's beginning."""
        run, found = self.run, self.figures
        said: dict[str, Any] = {
            "run": run.run,
            "rank": run.rank,
            "graph": run.graph.id,
            "driver": run.driver,
            "status": run.status,
            "started_ms": run.started_ns / 1e6,
            "duration_ms": found.duration_ns / 1e6,
            "critical_path_ms": found.critical_path_ns / 1e6,
            "critical_path": [{"node": node, "adds_ms": ns / 1e6} for node, ns in self.path],
            "busy_ms": found.busy_ns / 1e6,
            "compute_ms": found.compute_ns / 1e6,
            "wait_ms": found.waited_ns / 1e6,
            "overlap_pct": found.overlap_pct,
            "nodes": found.nodes,
            "bytes": found.bytes,
        }
        return said | ({"error_type": run.error_type, "error": run.error} if run.error_type else {})


@dataclass
class NodeRow:
    """A node over all runs: how often it began, and what that took, in nanoseconds.

    `wait_ns`: how long it was ready, and waited for a thread. One that never ended counts up to its run's end.
    """

    node: str
    count: int = 0
    total_ns: int = 0
    longest_ns: int = 0
    wait_ns: int = 0
    bytes: int = 0
    not_ok: int = 0

    @property
    def mean_ns(self) -> float:
        """What it takes, on the average."""
        return self.total_ns / self.count

    def as_dict(self) -> dict[str, Any]:
        """For JSON, units in the names."""
        return {
            "node": self.node,
            "count": self.count,
            "not_ok": self.not_ok,
            "total_ms": self.total_ns / 1e6,
            "mean_ms": self.mean_ns / 1e6,
            "max_ms": self.longest_ns / 1e6,
            "wait_ms": self.wait_ns / 1e6,
            "bytes": self.bytes,
        }


def run_rows(runs: Iterable[RunTrace]) -> list[RunRow]:
    """A row a run, in their order."""
    rows = []
    for run in runs:
        found = figures(run)
        names = [run.nodes[unit].node for unit in found.path]
        rows.append(RunRow(run, found, tuple(zip(names, parts(run, found.path), strict=True))))
    return rows


def node_rows(runs: Iterable[RunTrace]) -> list[NodeRow]:
    """A row a node that began at least once, those that took the most first."""
    rows: dict[str, NodeRow] = {}
    for run in runs:
        for node in run.nodes.values():
            if node.started_ns is None:
                continue
            row = rows.setdefault(node.node, NodeRow(node.node))
            took = max(0, (run.end_ns if node.finished_ns is None else node.finished_ns) - node.started_ns)
            row.count += 1
            row.not_ok += node.status != "ok"
            row.total_ns += took
            row.longest_ns = max(row.longest_ns, took)
            row.wait_ns += 0 if node.ready_ns is None else max(0, node.started_ns - node.ready_ns)
            row.bytes += sum(out.bytes for out in node.outputs)
    return sorted(rows.values(), key=lambda row: (-row.total_ns, row.node))
