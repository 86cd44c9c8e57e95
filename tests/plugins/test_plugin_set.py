"""Sets of plugins: explicit ones, what is installed, when it is loaded, and what a knot takes along of them."""

from __future__ import annotations

import copy
import importlib
import pickle
import sys
import threading
import types
import warnings
from typing import Any

import pytest

import tests.small
import weave.plugins.plugin_set
from tests.plugins.packages import GOOD, Packages
from tests.small import EXT, constant, knot
from weave import PluginException, StitchedModule
from weave.errors import PluginWarning
from weave.plugins import AdapterDef, PluginSet, ReducerDef, hookimpl


class Halves:
    """A plugin with an adapter of the caller's choice."""

    def __init__(self, by: float = 2) -> None:
        self.by = by

    def halve(self, value: float) -> float:
        return value / self.by

    @hookimpl
    def weave_adapters(self) -> list[AdapterDef]:
        return [AdapterDef(name="halves.halve", fn=self.halve, kind="output")]


class Broken:
    @hookimpl
    def weave_reducers(self) -> list[ReducerDef]:
        raise OSError("no licence")


class Misspelt:
    @hookimpl
    def weave_reducer(self) -> list[ReducerDef]:
        return []


def halving(plugins: Any, name: str = "halves.halve") -> StitchedModule:
    """8 through the adapter."""
    return knot((constant(8.0), EXT.output("y", adapter=name)), plugins=plugins)


def tying(plugins: Any) -> StitchedModule:
    """The longest of two, by a plugin of packages.GOOD."""
    ends = [EXT.output("y", reducer="good.longest") for _ in range(2)]
    return knot((constant([1]), ends[0]), (constant([1, 2], "d"), ends[1]), plugins=plugins)


def as_module(source: str, name: str = "made_by_hand") -> types.ModuleType:
    made = types.ModuleType(name)
    exec(source, made.__dict__)
    return made


# --- explicit ---


def test_objects_classes_and_modules_by_hand() -> None:
    assert halving(PluginSet(Halves()))({}, {})["y"] == 4
    assert halving(PluginSet(Halves))({}, {})["y"] == 4
    assert tying(PluginSet(as_module(GOOD)))({}, {})["y"] == [1, 2]
    names = [record.name for record in PluginSet(Halves(), Halves, as_module(GOOD)).records]
    assert names == ["Halves", "Halves", "made_by_hand"]


def test_a_knot_takes_plain_objects_too() -> None:
    assert halving([Halves(4)])({}, {})["y"] == 2
    assert halving(plugin for plugin in (Halves(8),))({}, {})["y"] == 1


def test_without_plugins_there_are_weaves_own() -> None:
    assert knot((constant(3.0), EXT.output("y", adapter="clone")), plugins=PluginSet())({}, {})["y"] == 3
    with pytest.raises(PluginException, match=r"no adapter is called 'halves\.halve'"):
        halving(PluginSet())


def test_an_explicit_set_sees_nothing_that_is_installed(packages: Packages) -> None:
    packages.install("good", GOOD)
    with pytest.raises(PluginException, match=r"no output reducer is called 'good\.longest'"):
        tying(PluginSet())
    assert "good" not in sys.modules, "it is not even loaded"
    assert tying(None)({}, {})["y"] == [1, 2]
    assert tying(PluginSet.installed())({}, {})["y"] == [1, 2]


def test_sets_are_added() -> None:
    both = PluginSet(Halves()) + PluginSet(as_module(GOOD))
    assert halving(both)({}, {})["y"] == 4
    assert tying(both)({}, {})["y"] == [1, 2]
    assert repr(both) == "PluginSet(Halves, made_by_hand)"


def test_one_that_is_given_twice_counts_once() -> None:
    plugin = Halves()
    for plugins in (PluginSet(plugin, plugin), PluginSet(Halves, Halves), PluginSet(plugin) + PluginSet(plugin)):
        assert len(plugins.records) == 1
        assert halving(plugins)({}, {})["y"] == 4
    with pytest.raises(PluginException, match="claimed"):
        halving(PluginSet(Halves(), Halves()))


def test_a_plugin_that_claims_a_name_twice_itself() -> None:
    class Twice:
        @hookimpl
        def weave_adapters(self) -> list[AdapterDef]:
            return [AdapterDef(name="halves.halve", fn=fn) for fn in (abs, float)]

    with pytest.raises(PluginException, match=r"'halves\.halve' is claimed 2 times by the plugin 'Twice'"):
        halving(PluginSet(Twice()))


def test_one_by_hand_that_does_not_work_is_an_error() -> None:
    with pytest.raises(PluginException, match="the plugin 'Broken' does not work: OSError: no licence") as raised:
        PluginSet(Halves(), Broken())
    assert isinstance(raised.value.__cause__, OSError)
    assert raised.value.name == "Broken"
    with pytest.raises(PluginException, match="Broken"):
        halving([Broken()])


def test_what_is_odd_about_one_by_hand_is_warned_of() -> None:
    with pytest.warns(PluginWarning, match="'Misspelt': weave_reducer is no hook .* weave_reducers"):
        PluginSet(Misspelt())
    with pytest.warns(PluginWarning, match="'str': it implements no hook"):
        PluginSet("weave_otel")


# --- installed ---


def test_what_is_installed_is_loaded_once(packages: Packages) -> None:
    packages.install("good", f"import sys; sys.loads = getattr(sys, 'loads', 0) + 1\n{GOOD}")
    try:
        assert PluginSet.installed() is PluginSet.installed()
        tying(None)
        tying(None)
        assert sys.loads == 1  # type: ignore[attr-defined]
    finally:
        del sys.loads  # type: ignore[attr-defined]


def test_what_is_installed_later_is_seen_after_forget(packages: Packages) -> None:
    assert "good" not in [record.name for record in PluginSet.installed().records]
    packages.install("good", GOOD)
    with pytest.raises(PluginException, match=r"good\.longest"):
        tying(None)
    PluginSet.forget()
    assert tying(None)({}, {})["y"] == [1, 2]


def test_to_forget_has_python_look_anew_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package may have been installed into a directory whose listing Python has kept."""
    asked: list[int] = []
    monkeypatch.setattr(importlib, "invalidate_caches", lambda: asked.append(1))
    PluginSet.forget()
    assert asked == [1]


def test_one_warning_for_all_that_is_wrong(packages: Packages) -> None:
    packages.install("bad", "1 / 0", version="0.3")
    packages.install("worse", "raise SystemExit")
    packages.install("odd", "from weave.plugins import hookimpl\n@hookimpl\ndef weave_reducer(): return []")
    packages.install("good", GOOD)
    with pytest.warns(PluginWarning) as caught:
        assert tying(None)({}, {})["y"] == [1, 2]
    (said,) = [str(warning.message) for warning in caught]
    assert caught[0].filename == tests.small.__file__, "it is shown at the line that called weave"
    for words in (
        "'bad' (bad 0.3) could not be loaded (ZeroDivisionError: division by zero)",
        "'worse' (worse 1.0) could not be loaded (SystemExit)",
        "'odd' (odd 1.0): weave_reducer is no hook of weave's; did you mean weave_reducers? `weave plugins check`",
        "WEAVE_DISABLE_PLUGINS",
    ):
        assert words in said
    assert "good" not in said
    assert [record.name for record in PluginSet.installed().failed] == ["bad", "worse"]
    tying(None)  # nothing is said a second time: a warning would be an error here


def test_where_warnings_are_errors_the_next_knot_works(packages: Packages) -> None:
    packages.install("bad", "1 / 0")
    packages.install("good", GOOD)
    with pytest.raises(PluginWarning, match="bad"):
        tying(None)
    assert tying(None)({}, {})["y"] == [1, 2]


@pytest.mark.parametrize("strict", ["1", "true", "YES"])
def test_strict(packages: Packages, monkeypatch: pytest.MonkeyPatch, strict: str) -> None:
    monkeypatch.setenv("WEAVE_PLUGINS_STRICT", strict)
    packages.install("good", GOOD)
    assert tying(None)({}, {})["y"] == [1, 2]
    packages.install("bad", "1 / 0")
    PluginSet.forget()
    for _ in range(2):  # each time, until it is repaired
        with pytest.raises(
            PluginException, match=r"WEAVE_PLUGINS_STRICT is set: 'bad' \(bad 1\.0\): ZeroDiv"
        ) as raised:
            tying(None)
        assert raised.value.name == "bad"
        assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert tying(PluginSet(sys.modules["good"]))({}, {})["y"] == [1, 2], "an explicit set has nothing to do with it"


@pytest.mark.parametrize("strict", ["0", "", "false", "no"])
def test_not_strict(packages: Packages, monkeypatch: pytest.MonkeyPatch, strict: str) -> None:
    monkeypatch.setenv("WEAVE_PLUGINS_STRICT", strict)
    packages.install("bad", "1 / 0")
    with pytest.warns(PluginWarning):
        PluginSet.installed()


def test_a_name_that_is_missing_may_be_that_of_a_plugin_that_failed_or_is_disabled(
    packages: Packages, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages.install("bad", "1 / 0")
    packages.install("aside", GOOD)
    packages.install("good", GOOD)
    monkeypatch.setenv("WEAVE_PLUGINS", "good,bad")
    with pytest.warns(PluginWarning, match="bad"):
        PluginSet.installed()
    with pytest.raises(PluginException) as raised:
        knot((constant(1), EXT.output("y", reducer="good.longer")))
    for words in (
        "external.output('y'): no output reducer is called 'good.longer'",
        "did you mean 'good.longest'?",
        "Plugins that could not be loaded, and may bring it: 'bad' (bad 1.0): ZeroDivisionError: division by zero",
        "Plugins that are disabled: 'aside' (aside 1.0)",
    ):
        assert words in str(raised.value)
    assert tuple(raised.value.nearest) == ("good.longest",)


class SeenLock:
    """A lock that says how often it was asked for."""

    def __init__(self, lock: Any) -> None:
        self.lock = lock
        self.asked = threading.Semaphore(0)

    def __enter__(self) -> None:
        self.asked.release()
        self.lock.acquire()

    def __exit__(self, *raised: Any) -> None:
        self.lock.release()


def test_two_first_knots_in_two_threads_load_once(packages: Packages, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second waits for the first instead of loading for itself, or of seeing half."""
    packages.install(
        "slow",
        f"""
{GOOD}
import sys

@hookimpl
def weave_target_types():
    sys.loading["count"] += 1
    sys.loading["begun"].set()
    assert sys.loading["go on"].wait(60)
""",
    )
    loading: dict[str, Any] = {"count": 0, "begun": threading.Event(), "go on": threading.Event()}
    monkeypatch.setattr(sys, "loading", loading, raising=False)
    lock = SeenLock(weave.plugins.plugin_set._lock)
    monkeypatch.setattr(weave.plugins.plugin_set, "_lock", lock)
    got: list[Any] = []
    threads = [threading.Thread(target=lambda: got.append(tying(None)({}, {})["y"])) for _ in range(2)]
    try:
        threads[0].start()
        assert lock.asked.acquire(timeout=60)
        assert loading["begun"].wait(60)
        threads[1].start()
        assert lock.asked.acquire(timeout=60), "the second has come to the lock, which the first has"
        assert got == []
    finally:
        loading["go on"].set()
        for thread in threads:
            thread.join(60)
    assert got == [[1, 2], [1, 2]]
    assert loading["count"] == 1


def test_a_plugin_that_ties_a_knot_while_it_is_loaded(packages: Packages) -> None:
    """It would wait for itself. It is told so, in its record, and what it ties with plugins of its own choice is fine."""
    tie = (
        "from weave import *\nneedle = Needle().stitch(ConstantTarget('c', 1).output(), ExternalTarget().output('y'))\n"
    )
    packages.install("waits", f"{tie}needle.knot()\n{GOOD}")
    packages.install("good", f"{tie}needle.knot(plugins=[])\n{GOOD}")
    done = packages.program(
        """
        import warnings
        from weave.plugins import PluginSet
        warnings.simplefilter("ignore")
        for record in PluginSet.installed().records:
            print(record.name, record.status, record.why)
        """,
        limit=120,
    )
    assert done.returncode == 0, done.stderr
    states = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert states["good"].strip() == "loaded"
    assert states["waits"].startswith("failed PluginException: a plugin ties a knot while it is being loaded")
    assert "plugins=PluginSet()" in states["waits"]


def test_nothing_is_loaded_before_the_first_knot(packages: Packages) -> None:
    packages.install("good", GOOD)
    done = packages.program(
        """
        import sys, weave, weave.core, weave.plugins
        from weave import ConstantTarget, ExternalTarget, Needle
        needle = Needle().stitch(ConstantTarget("c", 1).output(), ExternalTarget().output("y"))
        needle.knot(plugins=[])
        print("good" in sys.modules)
        needle.knot()
        print("good" in sys.modules)
        """
    )
    assert done.stdout.split() == ["False", "True"], done.stderr


# --- what a knot takes along ---


def restored(stitched: StitchedModule) -> list[StitchedModule]:
    return [pickle.loads(pickle.dumps(stitched)), copy.deepcopy(stitched), copy.copy(stitched)]


def test_a_knot_with_a_plugin_object_pickles_and_copies() -> None:
    for other in restored(halving(PluginSet(Halves(4)))):
        assert other({}, {})["y"] == 2, "the object, with what it holds"


def test_a_knot_with_a_plugin_module_pickles_and_copies(packages: Packages) -> None:
    packages.install("good", GOOD)
    import good  # type: ignore[import-not-found]

    stitched = tying(PluginSet(good))
    for other in restored(stitched):
        assert other({}, {})["y"] == [1, 2]
        assert [record.plugin for record in other._plugins.records] == [good], "by its name: the very module"  # type: ignore[union-attr]


def test_a_knot_with_what_is_installed_takes_what_is_installed_there(packages: Packages) -> None:
    packages.install("good", GOOD)
    kept = pickle.dumps(tying(None))
    assert b"PluginSet" not in kept
    assert pickle.loads(kept)({}, {})["y"] == [1, 2]


def test_a_deep_copy_has_the_same_plugins() -> None:
    """They are code: what they hold may well be a lock, or a connection."""

    class Locked(Halves):
        def __init__(self) -> None:
            super().__init__()
            self.lock = threading.Lock()

    plugins = PluginSet(Locked())
    stitched = halving(plugins)
    assert copy.deepcopy(stitched)({}, {})["y"] == 4
    assert copy.deepcopy(plugins) is copy.copy(plugins) is plugins


def test_a_set_pickles_without_what_did_not_load(packages: Packages) -> None:
    packages.install("bad", "1 / 0")
    packages.install("good", GOOD)
    with pytest.warns(PluginWarning):
        plugins = PluginSet.installed()
    other = pickle.loads(pickle.dumps(plugins))
    assert [record.name for record in other.records] == ["good"]
    assert tying(other)({}, {})["y"] == [1, 2]


def test_views_and_nested_graphs_keep_their_own() -> None:
    outer = halving(PluginSet(Halves(2))).with_options(max_workers=1)
    assert outer({}, {})["y"] == 4
    assert halving(PluginSet(Halves(8)))({}, {})["y"] == 1


def test_the_lock_is_free_afterwards(packages: Packages, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an interrupt while a plugin was loaded, too: the next knot loads anew."""
    packages.install(
        "one", "import sys\nif sys.interrupts:\n    sys.interrupts.pop()\n    raise KeyboardInterrupt\n" + GOOD
    )
    monkeypatch.setattr(sys, "interrupts", [1], raising=False)
    with pytest.raises(KeyboardInterrupt):
        PluginSet.installed()
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.append(tying(None)({}, {})["y"]))
    thread.start()
    thread.join(60)
    assert got == [[1, 2]]
    assert not weave.plugins.plugin_set._loading


def test_warnings_of_the_plugins_own_are_its_own(packages: Packages) -> None:
    packages.install("good", f"import warnings\nwarnings.warn('mine', DeprecationWarning)\n{GOOD}")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert tying(None)({}, {})["y"] == [1, 2]
    assert [str(warning.message) for warning in caught] == ["mine"]


def test_one_plugin_by_itself_is_refused_with_the_remedy() -> None:
    with pytest.raises(TypeError, match=r"plugins=\[\.\.\.\], not a module by itself"):
        knot((EXT.input("x"), EXT.output("y")), plugins=copy)
