"""Finding and loading: each package by itself, and whatever is wrong with it in its record."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.plugins.packages import GOOD, Packages, deny
from weave.builtin import builtin_records
from weave.plugins import AdapterDef, Command, ReducerDef, TargetType, TransportType, hookimpl
from weave.plugins.loader import HOOKS, RECORDS, PluginRecord, examine


class Fires:
    def fire(self, firing: Any) -> None:
        pass


def one(*values: Any) -> Any:
    return values[0]


async def later(*values: Any) -> Any:
    return values[0]


def none() -> Callable[[], list[Any]]:
    """A function that returns no records; another one each time, because a mark stays on a function."""

    def no_records() -> list[Any]:
        return []

    return no_records


def plugin(**functions: Callable[..., Any]) -> Any:
    """An object with these functions as hooks."""
    return type("Plugin", (), {name: staticmethod(hookimpl(f)) for name, f in functions.items()})()


# --- what works ---


def test_an_installed_package_is_found_and_asked(packages: Packages) -> None:
    packages.install("good", GOOD, version="2.5")
    record = packages.records()["good"]
    assert (record.status, record.distribution, record.version) == ("loaded", "good", "2.5")
    assert record.plugin is sys.modules["good"]
    assert set(record.hooks) == {"weave_reducers", "weave_adapters"}
    assert [r.name for r in record.provides["weave_reducers"]] == ["good.longest"]
    assert [a.name for a in record.provides["weave_adapters"]] == ["good.twice"]
    assert (record.error, record.trace, record.why, record.remarks, record.builtin) == (None, "", "", (), False)
    assert record.owner == "'good' (good 2.5)"


def test_several_entry_points_of_one_package_and_their_order(packages: Packages) -> None:
    packages.install("zed", GOOD)
    packages.install(
        "pack",
        """
        from weave.plugins import ReducerDef, hookimpl
        class Made:
            def __init__(self, name):
                self.name = name
            @hookimpl
            def weave_reducers(self):
                return [ReducerDef(name=self.name, fn=max, kind="output")]
        b, a = Made("pack.b"), Made("pack.a")
        """,
        points="[weave.plugins]\nm = pack:b\nc = pack:a\n",
    )
    records = packages.records()
    assert list(records) == ["c", "m", "zed"]
    assert [r.name for r in records["m"].provides["weave_reducers"]] == ["pack.b"]
    assert {records[name].distribution for name in ("c", "m")} == {"pack"}


def test_weaves_own_are_marked() -> None:
    assert all(record.builtin and record.distribution == "weave-dataflow" for record in builtin_records())
    assert not examine(plugin(weave_adapters=none()), "mine").builtin


def test_a_class_is_made_an_object(packages: Packages) -> None:
    packages.install(
        "classy",
        """
        from weave.plugins import AdapterDef, hookimpl
        class Plugin:
            def __init__(self):
                self.name = "classy.own"
            @hookimpl
            def weave_adapters(self):
                return [AdapterDef(name=self.name, fn=abs)]
        """,
        points="[weave.plugins]\nclassy = classy:Plugin\n",
    )
    record = packages.records()["classy"]
    assert record.status == "loaded", record.trace
    assert isinstance(record.plugin, sys.modules["classy"].Plugin)
    assert [a.name for a in record.provides["weave_adapters"]] == ["classy.own"]


@pytest.mark.parametrize(
    "answer",
    [
        lambda: [AdapterDef(name="a", fn=abs)],
        lambda: (AdapterDef(name="a", fn=abs),),
        lambda: {AdapterDef(name="a", fn=abs)},
        lambda: iter([AdapterDef(name="a", fn=abs)]),
        lambda: (AdapterDef(name=name, fn=abs) for name in "a"),
    ],
    ids=["list", "tuple", "set", "iterator", "generator"],
)
def test_any_iterable_is_an_answer(answer: Callable[[], Any]) -> None:
    record = examine(plugin(weave_adapters=answer), "p")
    assert record.status == "loaded", record.trace
    assert [a.name for a in record.provides["weave_adapters"]] == ["a"]


def test_a_hook_may_be_a_generator_function() -> None:
    def weave_adapters() -> Any:
        yield AdapterDef(name="a", fn=abs)
        yield AdapterDef(name="b", fn=abs)

    record = examine(plugin(weave_adapters=weave_adapters), "p")
    assert [a.name for a in record.provides["weave_adapters"]] == ["a", "b"]


@pytest.mark.parametrize("answer", [None, [], ()])
def test_nothing_is_an_answer_too(answer: Any) -> None:
    record = examine(plugin(weave_adapters=lambda: answer), "p")
    assert (record.status, record.hooks, record.remarks) == ("loaded", ("weave_adapters",), ())
    assert record.provides["weave_adapters"] == ()


def test_hooks_may_take_fewer_arguments() -> None:
    """pluggy gives an implementation what it has a name for."""
    record = examine(plugin(weave_observer=lambda: "for any run"), "p")
    assert record.status == "loaded"
    assert record.observe(run=object()) == ["for any run"]
    more = examine(plugin(weave_observer=lambda run, more: None), "p")
    assert more.status == "failed"
    assert "more" in more.why
    assert "\n" not in more.why


def test_a_hook_is_asked_once() -> None:
    asked: list[int] = []
    examine(plugin(weave_reducers=lambda: asked.append(1), weave_observer=lambda: asked.append(2)), "p")
    assert asked == [1], "and who observes only when there is a run"


# --- what does not ---

BROKEN = {
    "raises": ("import nowhere_at_all", "ModuleNotFoundError: No module named 'nowhere_at_all'"),
    "exits": ("import sys\nsys.exit('no licence')", "SystemExit: no licence"),
    "syntax": ("def f(:", "SyntaxError: invalid syntax (one.py, line 1)"),
    "base": ("class Stop(BaseException): pass\nraise Stop('at once')", "Stop: at once"),
    "hook": (
        "from weave.plugins import hookimpl\n@hookimpl\ndef weave_reducers():\n    raise RuntimeError('no\\n  weights')",
        "RuntimeError: no weights",
    ),
    "hook exits": (
        "from weave.plugins import hookimpl\n@hookimpl\ndef weave_reducers():\n    raise SystemExit(3)",
        "SystemExit: 3",
    ),
    "half way": (
        "from weave.plugins import *\n@hookimpl\ndef weave_adapters():\n    yield AdapterDef(name='a', fn=abs)\n    1 / 0",
        "ZeroDivisionError: division by zero",
    ),
    "mute": (
        "class Mute(Exception):\n    def __str__(self): raise OSError\nraise Mute",
        "Mute: (its text can't be shown)",
    ),
}


@pytest.mark.parametrize("how", BROKEN)
def test_what_is_wrong_is_in_the_record(packages: Packages, how: str) -> None:
    source, why = BROKEN[how]
    packages.install("good", GOOD)
    record = packages.one(source)
    assert (record.status, record.distribution, record.provides, record.observe) == ("failed", "one", {}, None)
    assert record.why == why
    assert "one.py" in record.trace
    assert record.error is not None
    assert type(record.error).__name__ in record.trace
    assert packages.records()["good"].status == "loaded"


@pytest.mark.parametrize("points", ["one = nowhere_at_all", "one = one:nothing", "one ="])
def test_an_entry_point_that_leads_nowhere(packages: Packages, points: str) -> None:
    packages.install("good", GOOD)
    packages.install("one", GOOD, points=f"[weave.plugins]\n{points}\n")
    records = packages.records()
    assert records["good"].status == "loaded"
    assert records["one"].status == "failed"


def test_a_long_error_is_cut_in_the_line_but_not_in_the_trace(packages: Packages) -> None:
    record = packages.one("raise ValueError('a' * 1000)")
    assert 250 < len(record.why) < 350
    assert record.why.endswith("...")
    assert "a" * 1000 in record.trace


def test_an_interrupt_goes_through(packages: Packages) -> None:
    packages.install("one", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        packages.records()

    def interrupted() -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        examine(plugin(weave_reducers=interrupted), "p")


@pytest.mark.parametrize("error", [ValueError("not today"), SystemExit(1)])
def test_a_class_that_can_not_be_made(error: BaseException) -> None:
    class Plugin:
        def __init__(self) -> None:
            raise error

    record = examine(Plugin, "p")
    assert record.status == "failed"
    assert record.error is error
    needs = examine(type("Needs", (), {"__init__": lambda self, url: None}), "p")
    assert needs.why.startswith("TypeError")


def test_a_file_of_entry_points_that_can_not_be_read(packages: Packages) -> None:
    """importlib's own function reads everybody's and ends at the first that is malformed."""
    packages.install("good", GOOD, version="1.5")
    packages.install("scribble", GOOD, points="[weave.plugins]\nthis is no entry point\n")
    packages.install("stranger", "", points="[console_scripts]\nneither is this\n")
    records = packages.records()
    assert records["good"].status == "loaded"
    assert records["good"].owner == "'good' (good 1.5)"
    assert records["scribble"].status == "failed"
    assert "entry points can't be read" in records["scribble"].why
    assert "stranger" not in records


def test_what_a_half_done_uninstall_leaves(packages: Packages) -> None:
    packages.install("half", None, described=False)
    packages.install("good", GOOD)
    records = packages.records()
    assert (records["half"].status, records["half"].owner) == ("failed", "'half'")
    assert records["half"].why == "ModuleNotFoundError: No module named 'half'"
    assert records["good"].status == "loaded"


def test_a_package_that_is_there_twice_counts_once(packages: Packages, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it does for the import: what is first on the path."""
    packages.install("good", GOOD, version="2.0")
    behind = Packages(packages.folder.parent / "behind")
    behind.folder.mkdir()
    behind.install("good", "raise OSError", version="1.0")
    monkeypatch.setattr(sys, "path", [*sys.path, str(behind.folder)])
    for malformed in (False, True):
        if malformed:
            packages.install("scribble", "", points="[weave.plugins]\nthis is no entry point\n")
        assert [(r.version, r.status) for r in packages.all() if r.name == "good"] == [("2.0", "loaded")]


@pytest.mark.parametrize("what", ["module", "object", "class"])
def test_one_object_under_two_names_is_refused_the_second_time(packages: Packages, what: str) -> None:
    """It would clash with itself in everything that it provides."""
    source = """
        from weave.plugins import AdapterDef, hookimpl
        class Plugin:
            @hookimpl
            def weave_adapters(self):
                return [AdapterDef(name="one.a", fn=abs)]
        plugin = Plugin()
        @hookimpl
        def weave_adapters():
            return [AdapterDef(name="one.b", fn=abs)]
        """
    where = {"module": "one", "object": "one:plugin", "class": "one:Plugin"}[what]
    packages.install("one", source, points=f"[weave.plugins]\na = {where}\nb = {where}\n")
    records = packages.records()
    assert (records["a"].status, records["b"].status) == ("loaded", "failed")
    assert records["b"].why == "PluginException: the same object as the plugin 'a' (one 1.0)"


# --- answers that are no answers ---


@pytest.mark.parametrize("hook", RECORDS)
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ([5], "must return {} records, not int"),
        ("abc", "must return {} records, not str"),
        ({"name": 1}, "must return {} records, not str"),
        (7, "'int' object is not iterable"),
    ],
)
def test_records_of_the_wrong_type(hook: str, answer: Any, said: str) -> None:
    record = examine(plugin(**{hook: lambda: answer}), "p")
    assert record.status == "failed"
    assert said.format(RECORDS[hook].__name__) in record.why
    assert hook in record.why or "iterable" in said


def test_a_record_of_another_hook_and_a_record_without_its_list() -> None:
    adapter = AdapterDef(name="a", fn=abs)
    other = examine(plugin(weave_reducers=lambda: [adapter]), "p")
    assert "must return ReducerDef records, not AdapterDef" in other.why
    alone = examine(plugin(weave_adapters=lambda: adapter), "p")
    assert "must return a list of AdapterDef records, not one alone" in alone.why


WRONG: list[tuple[str, Any, str]] = [
    ("weave_reducers", ReducerDef(name="r", fn=one, kind="outputs"), "neither"),  # type: ignore[arg-type]
    ("weave_reducers", ReducerDef(name="r", fn="one", kind="output"), "needs a function as fn=, not 'one'"),  # type: ignore[arg-type]
    ("weave_reducers", ReducerDef(name="r", fn=later, kind="output"), "async function"),
    ("weave_adapters", AdapterDef(name="", fn=abs), "needs a string for a name"),
    ("weave_adapters", AdapterDef(name=["a"], fn=abs), "needs a string for a name"),  # type: ignore[arg-type]
    ("weave_adapters", AdapterDef(name="a", fn=abs, kind="both"), "neither"),  # type: ignore[arg-type]
    ("weave_adapters", AdapterDef(name="a", fn=later), "async function"),
    ("weave_target_types", TargetType(name="t", target=[1], executor=Fires()), "needs a class as target="),  # type: ignore[arg-type]
    ("weave_target_types", TargetType(name="t", target=Fires, executor=one), "method fire"),  # type: ignore[arg-type]
    ("weave_transports", TransportType(scheme="s", connect=1), "connect="),  # type: ignore[arg-type]
    ("weave_transports", TransportType(scheme=None, connect=one), "needs a string"),  # type: ignore[arg-type]
    ("weave_commands", Command(name="c", about="", run=None), "run="),  # type: ignore[arg-type]
    ("weave_commands", Command(name="c", about="", run=one, add_arguments=3), "add_arguments="),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("hook", "record", "said"), WRONG, ids=lambda value: getattr(value, "__name__", None))
def test_records_that_nobody_could_use(hook: str, record: Any, said: str) -> None:
    """Found when the plugin is asked: it fails, and not somebody's knot."""
    made = examine(plugin(**{hook: lambda: [record]}), "p")
    assert made.status == "failed"
    assert said in made.why
    assert hook in made.why


def test_records_of_a_class_derived_from_a_records() -> None:
    class Loud(Command):
        pass

    command = Loud(name="shout", about="loudly", run=one)
    record = examine(plugin(weave_commands=lambda: [command]), "p")
    assert record.provides == {"weave_commands": (command,)}, record.trace


# --- hooks that are none ---


@pytest.mark.parametrize("how", ["async", "asynchronous generator", "static", "class"])
def test_an_async_hook_is_refused_with_the_reason(packages: Packages, how: str) -> None:
    body = "yield AdapterDef(name='a', fn=abs)" if "generator" in how else "return []"
    wrapper = {"static": "@staticmethod", "class": "@classmethod"}.get(how, "")
    packages.install(
        "one",
        f"""
        from weave.plugins import AdapterDef, hookimpl
        class Plugin:
            {wrapper}
            @hookimpl
            async def weave_adapters({"" if how == "static" else "self"}):
                {body}
        """,
        points="[weave.plugins]\none = one:Plugin\n",
    )
    record = packages.records()["one"]
    assert record.status == "failed"
    for words in ("weave_adapters is an async function", "without an event loop", "what its records hold may be async"):
        assert words in record.why


def remarks_on(**functions: Any) -> tuple[str, ...]:
    record = examine(type("Plugin", (), {n: staticmethod(f) for n, f in functions.items()})(), "p")
    assert record.status == "loaded", record.trace
    return record.remarks


def test_names_that_look_like_hooks() -> None:
    marked: Any = hookimpl(none())
    assert remarks_on(weave_reducer=marked) == ("weave_reducer is no hook of weave's; did you mean weave_reducers?",)
    assert remarks_on(weave_reducer=none()) == ("weave_reducer is no hook of weave's; did you mean weave_reducers?",)
    assert remarks_on(weave_reducers=none()) == ("weave_reducers is not marked with @hookimpl, so it is not called",)
    (far,) = remarks_on(weave_zzz=marked)
    assert far == f"weave_zzz is no hook of weave's; there are {', '.join(HOOKS)}"
    (elsewhere,) = remarks_on(reducers=hookimpl(none()))
    assert elsewhere.startswith("reducers is no hook of weave's")
    assert len(remarks_on(weave_reducer=marked, weave_adapter=marked)) == 2


def test_a_hook_under_another_name_of_the_plugins_own() -> None:
    """pluggy's `specname`, and its word for a hook that a newer weave may have."""
    adapter = AdapterDef(name="a", fn=abs)
    own = hookimpl(specname="weave_adapters")(lambda: [adapter])
    newer = hookimpl(optionalhook=True)(none())
    record = examine(type("Plugin", (), {"mine": staticmethod(own), "weave_later": staticmethod(newer)})(), "p")
    assert record.remarks == ()
    assert record.provides["weave_adapters"] == (adapter,)


def test_a_plugin_beside_which_there_are_other_functions() -> None:
    good: Any = hookimpl(none())
    assert remarks_on(weave_adapters=good, weave_zzz=none(), other=none()) == ()


def test_a_plugin_without_hooks() -> None:
    (said,) = remarks_on()
    assert said == f"it implements no hook of weave's; there are {', '.join(HOOKS)}"


# --- which of them ---


def states(packages: Packages) -> dict[str, str]:
    return {name: record.status for name, record in packages.records().items()}


@pytest.fixture
def three(packages: Packages) -> Packages:
    """Three plugins: their names are not those of their distributions."""
    for name in ("a", "b", "c"):
        packages.install(
            f"Weave_{name}",
            GOOD,
            module=f"weave_plugin_{name}",
            points=f"[weave.plugins]\n{name} = weave_plugin_{name}\n",
        )
    return packages


@pytest.mark.parametrize(
    ("allow", "loaded"),
    [
        ("a", "a"),
        ("a,c", "ac"),
        (" a , ,c, ", "ac"),
        ("weave-b", "b"),
        ("Weave_b,A", "ab"),
        ("*", "abc"),
        ("", "abc"),
        (",", "abc"),
    ],
)
def test_the_variable_that_allows(three: Packages, monkeypatch: pytest.MonkeyPatch, allow: str, loaded: str) -> None:
    monkeypatch.setenv("WEAVE_PLUGINS", allow)
    assert states(three) == {name: "loaded" if name in loaded else "disabled" for name in "abc"}
    for name in "abc":
        assert (f"weave_plugin_{name}" in sys.modules) == (name in loaded), "who is disabled is not even imported"


@pytest.mark.parametrize(
    ("denied", "loaded"),
    [(["a"], "bc"), (["a", "c"], "b"), (["weave.b"], "ac"), (["*"], ""), (["nobody"], "abc"), ([], "abc")],
)
def test_the_variable_that_denies(
    three: Packages, monkeypatch: pytest.MonkeyPatch, denied: list[str], loaded: str
) -> None:
    deny(monkeypatch, three, denied)
    assert states(three) == {name: "loaded" if name in loaded else "disabled" for name in "abc"}
    for name in "abc":
        assert (f"weave_plugin_{name}" in sys.modules) == (name in loaded)


def test_who_is_denied_is_not_allowed(three: Packages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEAVE_PLUGINS", "a,b")
    deny(monkeypatch, three, ["b"])
    assert states(three) == {"a": "loaded", "b": "disabled", "c": "disabled"}


def test_a_name_that_is_allowed_and_that_nobody_has(three: Packages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEAVE_PLUGINS", "a,weave-bb")
    records = three.records()
    assert records["a"].status == "loaded"
    assert (records["weave-bb"].status, records["weave-bb"].owner) == ("failed", "'weave-bb'")
    assert (
        "WEAVE_PLUGINS names it, and no installed package brings it; did you mean 'weave-b'?" in records["weave-bb"].why
    )


def test_the_record_of_one_that_is_disabled(three: Packages, monkeypatch: pytest.MonkeyPatch) -> None:
    deny(monkeypatch, three, ["a"])
    record: PluginRecord = three.records()["a"]
    assert (record.distribution, record.version, record.plugin, record.hooks) == ("Weave_a", "1.0", None, ())
