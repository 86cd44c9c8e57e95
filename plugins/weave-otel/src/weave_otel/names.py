"""What spans, attributes and metrics are called, in one place: dashboards depend on them.

`error.type` and `thread.name` are OpenTelemetry's own. The others stand under `weave.`, and none of them is a prefix of
another, as OpenTelemetry's rules for names ask.
"""

from __future__ import annotations

RUN_SPAN = "weave.run"
NODE_SPAN = "weave.node"  # followed by the node's id: few different names, because a graph has the same in every run

RUN_ID = "weave.run.id"
DRIVER = "weave.driver"
NODES = "weave.graph.nodes"
STITCHES = "weave.graph.stitches"
NODE = "weave.node"
TARGET = "weave.target"
STATUS = "weave.status"
SOURCE = "weave.stitch.source"
DESTINATION = "weave.stitch.destination"
ERROR_TYPE = "error.type"
THREAD = "thread.name"

RUN_DURATION = "weave.run.duration"
NODE_DURATION = "weave.node.duration"

# Seconds. OpenTelemetry's usual buckets begin at 5 ms, where most nodes are over: these go from 10 µs to 10 minutes.
# fmt: off
BUCKETS = (
    1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3,
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 600.0,
)
# fmt: on


def error_type(error: BaseException) -> str:
    """The exception's class as OpenTelemetry names one: with its module, unless it is a built-in."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
