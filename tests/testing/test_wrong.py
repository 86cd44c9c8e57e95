"""Every check of the suites is seen failing: on plugins that are wrong in one way, and only the checks of that way fail."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from weave.testing import AdapterSuite, ObserverSuite, ReducerSuite, TargetTypeSuite, TransportSuite
from weave.testing.suites import PluginSuite

pytest_plugins = ["pytester"]

HERE = Path(__file__).parent / "wrong"
SUITES: dict[type, tuple[str, ...]] = {
    ReducerSuite: ("reducers",),
    AdapterSuite: ("adapters",),
    TargetTypeSuite: ("targets", "targets_life"),
    ObserverSuite: ("observers",),
    TransportSuite: ("transports", "transports_ends"),
}


def cases(module: Any) -> dict[str, Any]:
    named = {name: cls for name, cls in vars(module).items() if name.startswith(("Wrong", "Right"))}
    return {name: cls for name, cls in named.items() if issubclass(cls, PluginSuite)}


def checks(suite: type) -> set[str]:
    return {name for name in dir(suite) if name.startswith("test_")}


class Enough:
    """Of the checks that a wrong plugin passes, one set of parameters will do; of one that does little right, none."""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        seen: set[str] = set()
        kept = []
        for item in items:
            cls, check = item.cls, item.originalname  # type: ignore[attr-defined]
            if not cls.fails or check in cls.fails:
                kept.append(item)
            elif not getattr(cls, "most", False) and item.nodeid.partition("[")[0] not in seen:
                seen.add(item.nodeid.partition("[")[0])
                kept.append(item)
        items[:] = kept


@pytest.mark.parametrize("name", [name for names in SUITES.values() for name in names])
@pytest.mark.filterwarnings("default")  # of what is wrong, some warn too
def test_what_is_wrong_is_found_out_by_its_check(name: str, pytester: pytest.Pytester) -> None:
    # In this process, where torch is imported already; with none of this project's settings.
    settings = ["-c", "/dev/null", f"--rootdir={HERE.parents[2]}", "--noconftest", "-p", "no:cacheprovider", "-q"]
    settings += ["--tb=line", "-p", "no:asyncio", "-o", "python_classes=Wrong* Right*"]
    ran = pytester.inline_run(HERE / f"{name}.py", *settings, plugins=[Enough()])
    failed: dict[str, set[str]] = {}
    why: dict[tuple[str, str], str] = {}
    for report in ran.getreports("pytest_runtest_logreport"):
        if report.failed:
            cls, test = report.nodeid.split("[")[0].split("::")[-2:]
            failed.setdefault(cls, set()).add(test)
            why.setdefault((cls, test), str(report.longrepr)[-1500:])
    assert not [r for r in ran.getreports("pytest_collectreport") if r.failed]
    module = importlib.import_module(f"tests.testing.wrong.{name}")
    for case, cls in cases(module).items():
        got = failed.pop(case, set())
        missed = cls.fails - got
        assert not missed, f"{case}: not found out by {missed}; failed: {got}"
        more = set() if getattr(cls, "most", False) else got - cls.fails - getattr(cls, "may", set())
        assert not more, f"{case}: also failed {more}: " + "\n".join(why[case, test] for test in more)
    assert not failed


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.__name__)
def test_every_check_is_seen_failing(suite: type) -> None:
    modules = [importlib.import_module(f"tests.testing.wrong.{name}") for name in SUITES[suite]]
    found = set().union(*(cls.fails for module in modules for cls in cases(module).values()))
    assert found == checks(suite), found ^ checks(suite)
