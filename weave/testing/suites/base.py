"""What the suites share: the plugin under test, examples and drivers as parameters, and messages that say what to do."""

from __future__ import annotations

import contextvars
import copy
import importlib.util
import json
import pickle
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

import anyio
import pytest

from weave.builtin import registry_of
from weave.plugins.plugin_set import PluginSet
from weave.plugins.registry import Registry
from weave.stitched import StitchedModule, StitchedModuleOutput
from weave.testing.suites.values import same

T = TypeVar("T")

BACKENDS = ("asyncio", "trio")


def expect(holds: Any, message: str) -> None:
    """Fail with a message that stands for itself: whoever reads it has not written the check."""
    if not holds:
        raise AssertionError(message)


def drive(driver: str, stitched: StitchedModule, inputs: Any, outputs: Any, *args: Any) -> StitchedModuleOutput:
    """Run a graph once: `driver` is "inline" (a synchronous call), "asyncio" or "trio"."""
    if driver == "inline":
        out: StitchedModuleOutput = stitched(inputs, outputs, *args)
        return out
    return on_loop(driver, lambda: stitched.run(inputs, outputs, *args))


def on_loop(backend: str, function: Callable[[], Awaitable[T]]) -> T:
    """Run an async function on a loop of its own."""
    return anyio.run(function, backend=backend)


def at_once(
    backend: str, runs: int, one: Callable[..., Coroutine[Any, Any, None]], cases: Sequence[tuple[Any, ...]]
) -> None:
    """Await `one(*case)` so many times at once, of the cases in turn, and of each at least once."""

    async def all_of_them() -> None:
        async with anyio.create_task_group() as group:
            for index in range(max(runs, len(cases))):
                group.start_soon(one, *cases[index % len(cases)])

    if cases:
        on_loop(backend, all_of_them)


def within(limit: float, what: str, function: Callable[[], T]) -> T:
    """Call a function in a thread that may hang. A test that hangs says nothing; this one says what hangs, and fails."""
    ended: list[T] = []
    raised: list[BaseException] = []

    def call() -> None:
        try:
            ended.append(function())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=contextvars.copy_context().run, args=(call,), name="weave-suite", daemon=True)
    thread.start()
    thread.join(limit)
    if raised:
        raise raised[0]
    expect(ended, f"{what} was not over after {limit:g} s")
    return ended[0]


def _parameters(names: Iterable[str]) -> list[Any]:
    made: list[Any] = []
    for name in names:
        if name == "trio" and importlib.util.find_spec("trio") is None:
            skip = pytest.mark.skip(reason="trio is not installed; `pip install trio`, and this is checked there too")
            made.append(pytest.param(name, marks=skip))
        else:
            made.append(name)
    return made


class PluginSuite:
    """The base of all suites.

    Attributes:
        plugin: the module or object with the hooks; or a `PluginSet`, for instance `PluginSet.installed()`. `None` for
            what comes with weave.
        backends: the loops that `run` is tried on.
        limit: seconds after which something that hangs is given up.
    """

    plugin: Any = None
    backends: Sequence[str] = BACKENDS
    limit: float = 30.0

    @property
    def plugins(self) -> PluginSet:
        """What the suite's graphs are tied with."""
        if isinstance(self.plugin, PluginSet):
            return self.plugin
        return PluginSet() if self.plugin is None else PluginSet(self.plugin)

    @property
    def registry(self) -> Registry:
        """What a knot finds there, weave's own included."""
        return registry_of(self.plugins)

    def same(self, got: Any, expected: Any) -> bool:
        """Whether a value is the expected one. Override it where `==`, or nearly equal tensors, is not what counts."""
        return same(got, expected)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Parameters: `driver`, `backend`, and what the suite has; one skipped test where a check does not apply."""
        test = metafunc.definition.name
        known = {"driver": ["inline", *self.backends], "backend": list(self.backends), **self.parameters(test)}
        asked = {name: values for name, values in known.items() if name in metafunc.fixturenames}
        why_not = self.skipped(test) or next((f"no {name} for it" for name in asked if not asked[name]), "")
        for name, values in asked.items():
            if why_not:
                metafunc.parametrize(name, [pytest.param(None, marks=pytest.mark.skip(reason=why_not))], ids=["none"])
            elif name in ("driver", "backend"):
                metafunc.parametrize(name, _parameters(values))
            else:
                metafunc.parametrize(name, values, ids=[f"{name}{index}" for index in range(len(values))])

    def parameters(self, test: str) -> dict[str, list[Any]]:
        """What that test may ask for by name, beside `driver` and `backend`."""
        return {}

    def skipped(self, test: str) -> str:
        """Why that test does not apply, or `""`."""
        return ""

    def is_same(self, got: Any, expected: Any, where: str) -> None:
        """Fail unless a value is the expected one."""
        expect(self.same(got, expected), f"{where}: got {got!r}, expected {expected!r}")

    # --- checks of every suite ---

    def test_the_plugin_loads(self) -> None:
        """It loads, and nothing about it is odd: a misspelt hook is never called, and never missed."""
        for record in self.plugins.records:
            expect(record.status == "loaded", f"the plugin {record.owner} is {record.status}: {record.why}")
            expect(not record.remarks, f"the plugin {record.owner}: {'; '.join(record.remarks)}")


def in_the_plan(stitched: StitchedModule, key: str) -> list[Any]:
    """What a plan's dict form says under a key of its ports. It must be data that JSON can hold."""
    stitches = json.loads(json.dumps(stitched.plan.to_dict()))["stitches"]
    return [port[key] for stitch in stitches for port in (stitch["source"], stitch["destination"]) if key in port]


def pickled(stitched: StitchedModule) -> StitchedModule:
    """A knot after pickling, as another process gets it."""
    made: StitchedModule = pickle.loads(pickle.dumps(stitched))
    return made


def copied(stitched: StitchedModule) -> StitchedModule:
    """A deep copy of a knot."""
    return copy.deepcopy(stitched)
