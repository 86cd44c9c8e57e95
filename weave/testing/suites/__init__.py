"""Suites of tests for plugins: subclass one, say what is under test, give examples, and run pytest.

Each check is a method with a docstring that says what it wants. One that does not apply is set to `None` in the subclass.
They are plain synchronous tests that bring their own loops, so they need pytest and none of its plugins, and can't get in
the way of whatever drives a project's own async tests.
"""

from __future__ import annotations

import importlib.util

if importlib.util.find_spec("pytest") is None:
    raise ModuleNotFoundError(
        "the suites of weave.testing are run by pytest, which is not installed, and which weave does not need otherwise: "
        "pip install pytest",
        name="pytest",
    )

from weave.testing.suites.adapter import AdapterExample, AdapterSuite
from weave.testing.suites.base import PluginSuite
from weave.testing.suites.observer import ObserverSuite
from weave.testing.suites.reducer import ReducerExample, ReducerSuite
from weave.testing.suites.target_type import TargetExample, TargetTypeSuite
from weave.testing.suites.transport import TransportSuite

__all__ = [
    "AdapterExample",
    "AdapterSuite",
    "ObserverSuite",
    "PluginSuite",
    "ReducerExample",
    "ReducerSuite",
    "TargetExample",
    "TargetTypeSuite",
    "TransportSuite",
]
