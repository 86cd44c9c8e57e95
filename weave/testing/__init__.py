"""What tests of concurrent graphs and of plugins need.

An order of events that is forced or recorded, never slept for:

- `Sequencer` lets named steps happen in one order, in whatever threads and tasks they are taken.
- `Gate` is a function target that holds its value until the test opens it.
- `Firings` writes down what a graph's runs do: which node started, delivered and ended, in which order and thread.

All of them work under a synchronous call, asyncio and trio, and give up after a time limit with an `AssertionError` that
says who waited for what, because a test that hangs says nothing.

And for pytest, which only these need:

- Suites that a plugin's tests subclass: `ReducerSuite`, `AdapterSuite`, `TargetTypeSuite`, `ObserverSuite`,
  `TransportSuite`.
- Fixtures, by `pytest_plugins = ["weave.testing.pytest_plugin"]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weave.testing.firings import Firing, Firings
from weave.testing.gate import Gate
from weave.testing.sequencer import Sequencer

if TYPE_CHECKING:
    from weave.testing.suites import (
        AdapterExample,
        AdapterSuite,
        ObserverSuite,
        ReducerExample,
        ReducerSuite,
        TargetExample,
        TargetTypeSuite,
        TransportSuite,
    )

# Loaded when they are first used: they need pytest, and the rest does not.
_SUITES = (
    "AdapterExample",
    "AdapterSuite",
    "ObserverSuite",
    "ReducerExample",
    "ReducerSuite",
    "TargetExample",
    "TargetTypeSuite",
    "TransportSuite",
)

__all__ = [
    "AdapterExample",
    "AdapterSuite",
    "Firing",
    "Firings",
    "Gate",
    "ObserverSuite",
    "ReducerExample",
    "ReducerSuite",
    "Sequencer",
    "TargetExample",
    "TargetTypeSuite",
    "TransportSuite",
]


def __getattr__(name: str) -> Any:
    if name not in _SUITES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from weave.testing import suites

    return getattr(suites, name)


def __dir__() -> list[str]:
    return sorted(__all__)
