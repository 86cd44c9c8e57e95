"""OpenTelemetry for weave: a span for each run and node, linked along the stitches, and their durations as metrics.

Installed, it observes every run, once the application has an OpenTelemetry SDK. This module is the plugin;
`Telemetry` is it with providers of your own.
"""

from __future__ import annotations

from weave.plugins import Observer, RunInfo, hookimpl

from weave_otel.telemetry import VERSION as __version__
from weave_otel.telemetry import Telemetry

__all__ = ["Telemetry", "__version__", "weave_observer"]

_installed = Telemetry()


@hookimpl
def weave_observer(run: RunInfo) -> Observer | None:
    """An observer for the run, or `None` where no SDK would see what it tells."""
    return _installed.weave_observer(run)
