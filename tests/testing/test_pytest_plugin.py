"""The fixtures, and what the suites need: pytest when one is used, trio where it is there."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest

from weave import FunctionTarget, Needle, PluginException
from weave.plugins import AdapterDef, PluginSet, hookimpl
from weave.testing import ReducerSuite
from weave.testing.pytest_plugin import as_installed, no_installed_plugins  # noqa: F401 - fixtures

pytest_plugins = ["pytester"]


def run(pytester: pytest.Pytester, body: str) -> pytest.RunResult:
    pytester.makeconftest('pytest_plugins = ["weave.testing.pytest_plugin"]')
    pytester.makepyfile(body)
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:asyncio")


def test_firings_are_there(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        from weave import ExternalTarget, FunctionTarget, Needle

        def test_it(firings):
            e, f = ExternalTarget(), FunctionTarget("f", abs)
            stitched = Needle().stitch(e.input("x"), f.input()).stitch(f.output(), e.output("y")).knot()
            firings.watch(stitched)({"x": -1}, {})
            assert firings.nodes() == ["f"]

        def test_another_has_its_own(firings):
            assert firings.all == []
        """,
    )
    result.assert_outcomes(passed=2)


def test_a_test_that_took_not_all_steps_fails(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        def test_all(sequencer):
            order = sequencer("a", "b")
            order.reach("a"), order.reach("b")

        def test_some(sequencer):
            sequencer("a", "b").reach("a")

        def test_failed_already(sequencer):
            sequencer("a", "b", limit=0)
            assert False
        """,
    )
    result.assert_outcomes(passed=2, failed=1, errors=1)
    result.stdout.fnmatch_lines(["*these steps were not taken: 'b'"])


def test_gates_are_opened_at_the_end(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import threading

        def test_it(gate):
            closed = gate("g", threaded=True)
            threading.Thread(target=closed.function, args=(1,), name="behind the gate").start()
            closed.wait_arrived()
            assert closed.name == "g"
        """,
    )
    result.assert_outcomes(passed=1)
    for thread in threading.enumerate():
        if thread.name == "behind the gate":
            thread.join(30)
            assert not thread.is_alive()


class Halves:
    @hookimpl
    def weave_adapters(self) -> list[AdapterDef]:
        return [AdapterDef(name="halve", fn=lambda value: value / 2)]


def halved() -> Any:
    from weave import ExternalTarget

    e, f = ExternalTarget(), FunctionTarget("f", abs)
    needle = Needle().stitch(e.input("x"), f.input()).stitch(f.output(), e.output("y", adapter="halve"))
    return needle.knot()({"x": -4}, {})["y"]


def test_plugins_as_if_they_were_installed(as_installed: Any) -> None:  # noqa: F811
    found = as_installed(Halves())
    assert halved() == 2
    assert PluginSet.installed() is found


def test_whatever_is_installed_is_not_seen(as_installed: Any, request: pytest.FixtureRequest) -> None:  # noqa: F811
    as_installed(Halves())
    request.getfixturevalue("no_installed_plugins")
    with pytest.raises(PluginException, match="no adapter is called 'halve'"):
        halved()


def test_afterwards_it_is_as_it_was() -> None:
    assert "halve" not in repr([record.provides for record in PluginSet.installed().records])


# --- what is not installed ---


def test_only_the_suites_need_pytest() -> None:
    code = """
import sys
import weave.testing
assert "pytest" not in sys.modules and "weave.testing.suites" not in sys.modules
sys.modules["pytest"] = None
from weave.testing import Firings, Gate, Sequencer
assert "ReducerSuite" in dir(weave.testing)
try:
    from weave.testing import ReducerSuite
except ModuleNotFoundError as error:
    assert error.name == "pytest", error.name
    print(error)
try:
    weave.testing.ReducerSweet
except AttributeError as error:
    print(error)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == [
        "the suites of weave.testing are run by pytest, which is not installed, and which weave does not need otherwise: "
        "pip install pytest",
        "module 'weave.testing' has no attribute 'ReducerSweet'",
    ]


def test_without_trio_its_cases_are_skipped_and_say_so(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "trio", None)
    result = run(
        pytester,
        """
        from weave.testing import ReducerSuite

        class TestIt(ReducerSuite):
            name = "sum"
            examples = [([1, 2], 3)]
        """,
    )
    outcomes = result.parseoutcomes()
    assert outcomes["skipped"] == 3, outcomes  # in a graph, in many runs; there are no gradients to look at
    assert outcomes.keys() - {"warnings"} == {"passed", "skipped"}


def test_a_check_is_left_out_by_setting_it_to_none(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        from weave.testing import ReducerSuite

        class TestIt(ReducerSuite):
            name = "sum"
            examples = [([1, 2], 3)]
            test_pickles = None  # for this reason
            test_in_a_graph = None
        """,
    )
    assert "failed" not in result.parseoutcomes()
    every = [name for name in dir(ReducerSuite) if name.startswith("test_")]
    ran = pytester.inline_genitems("-p", "no:asyncio")[0]
    left_out = {"test_pickles", "test_in_a_graph"}
    assert {item.originalname for item in ran} == set(every) - left_out  # type: ignore[attr-defined]
