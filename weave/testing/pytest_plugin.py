"""Fixtures for tests of graphs and plugins: `pytest_plugins = ["weave.testing.pytest_plugin"]` in a conftest.

Not a pytest plugin that is found by itself: whoever has weave installed may not want its names in every test.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from weave.plugins.plugin_set import PluginSet
from weave.testing.firings import Firings
from weave.testing.gate import Gate
from weave.testing.sequencer import Sequencer

_passed = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember whether the test itself passed: a fixture's complaint would only hide why it did not."""
    report = yield
    if report.when == "call":
        item.stash[_passed] = report.passed
    return report


@pytest.fixture
def firings() -> Firings:
    """An empty record: `firings.watch(stitched)` is the graph whose runs are written down in it."""
    return Firings()


@pytest.fixture
def sequencer(request: pytest.FixtureRequest) -> Iterator[Callable[..., Sequencer]]:
    """Makes a `Sequencer` of named steps. A test that passes without having taken all of them has shown nothing, and fails."""
    made: list[Sequencer] = []

    def make(*steps: str, limit: float = 10.0) -> Sequencer:
        made.append(Sequencer(*steps, limit=limit))
        return made[-1]

    yield make
    if request.node.stash.get(_passed, False):
        for order in made:
            missing = [step for step in order.steps if step not in order.reached]
            if missing:
                pytest.fail(f"the test has ended, and these steps were not taken: {', '.join(map(repr, missing))}")


@pytest.fixture
def gate() -> Iterator[Callable[..., Gate]]:
    """Makes a `Gate`. All are opened when the test ends, so that no thread waits behind one for ever."""
    made: list[Gate] = []

    def make(name: str = "gate", *, threaded: bool = False, limit: float = 10.0) -> Gate:
        made.append(Gate(name, threaded=threaded, limit=limit))
        return made[-1]

    yield make
    for each in made:
        each.open()


@pytest.fixture
def as_installed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., PluginSet]:
    """`as_installed(plugin, ...)`: to every knot of this test these are the installed plugins, and no others are."""

    def install(*plugins: Any) -> PluginSet:
        found = PluginSet(*plugins)
        monkeypatch.setattr(PluginSet, "installed", staticmethod(lambda: found))
        return found

    return install


@pytest.fixture
def no_installed_plugins(as_installed: Callable[..., PluginSet]) -> PluginSet:
    """Whatever this environment has installed, knots of this test don't see it. Those given by `knot(plugins=...)` they do."""
    return as_installed()
