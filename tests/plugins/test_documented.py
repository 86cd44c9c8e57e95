"""What plugins are written against is documented name by name, has examples that run, and changes only on purpose.

`spi_snapshot.txt` lists all of it: hooks, records, events, protocols, with fields and defaults. After a change that is
meant, `python -m tests.plugins.test_documented` writes it anew; then say so in `docs/plugins/hooks.md` and `CHANGELOG.md`.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import weave.plugins
from tests.plugins.test_packages_use_public_names import offences
from weave import ExternalTarget, FunctionTarget, Needle
from weave.builtin import builtin_records
from weave.graph.plan import InPort, OutPort
from weave.plugins import PluginSet
from weave.plugins.loader import HOOKS, PluginRecord
from weave.spi import events, executor, records, transport
from weave.spi.events import Event, Observer, RunInfo
from weave.spi.hooks import WeaveSpec

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "plugins" / "hooks.md"
TESTING = ROOT / "docs" / "plugins" / "testing.md"
SNAPSHOT = Path(__file__).parent / "spi_snapshot.txt"

# Hooks that neither weave itself nor a package under plugins/ implements, and why there is nobody.
NO_USER: dict[str, str] = {}


def hooks() -> dict[str, Any]:
    return {name: function for name, function in vars(WeaveSpec).items() if hasattr(function, "weave_spec")}


def classes(module: Any) -> list[type]:
    """Those that a module defines, in its order."""
    return [c for c in vars(module).values() if inspect.isclass(c) and c.__module__ == module.__name__]


def record_types() -> list[type]:
    return [cls for cls in classes(records) if dataclasses.is_dataclass(cls)]


def event_types() -> list[type]:
    return [cls for cls in classes(events) if issubclass(cls, Event) and not cls.__subclasses__()]


def observer_methods() -> list[str]:
    return [name for name in vars(Observer) if not name.startswith("_")]


def protocols() -> list[type]:
    return [executor.Firing, executor.Preparation, transport.Endpoint, transport.Hears, transport.Meeting]


def members(protocol: type) -> list[str]:
    return [name for name in vars(protocol) if not name.startswith("_")]


class Written:
    """An annotation, as it stands in the source."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def signature(function: Any) -> str:
    """As it stands in the source, without `self`."""
    said = inspect.signature(function)
    parameters = [p.replace(annotation=Written(p.annotation)) for p in said.parameters.values() if p.name != "self"]
    return str(said.replace(parameters=parameters, return_annotation=Written(said.return_annotation)))


def default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return "a function" if callable(field.default) else repr(field.default)
    return "required" if field.default_factory is dataclasses.MISSING else f"{field.default_factory.__name__}()"  # type: ignore[attr-defined]


# --- the page ---


def section(heading: str) -> str:
    """What stands below a heading, up to the next of its level or above."""
    text = PAGE.read_text()
    level = next(line for line in text.splitlines() if re.fullmatch(rf"#+ {re.escape(heading)}", line)).count("#")
    below = text.split(f"\n{'#' * level} {heading}\n", 1)[1]
    return re.split(rf"\n#{{2,{level}}} ", below, maxsplit=1)[0]  # one # alone begins a comment in an example


def rows(text: str) -> dict[str, str]:
    """The rows of the tables in a text, by their first cell."""
    found = {}
    for line in text.splitlines():
        if line.startswith("| `"):
            first, rest = line.removeprefix("| ").split(" | ", 1)
            found[first] = rest
    return found


def test_there_are_hooks() -> None:
    """So that what is below looks at something."""
    assert tuple(hooks()) == HOOKS
    assert [cls.__name__ for cls in record_types()] == [
        "TargetType",
        "ReducerDef",
        "AdapterDef",
        "TransportType",
        "Command",
    ]
    assert len(event_types()) == len(observer_methods()) == 10


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_is_documented_with_its_arguments_and_an_example(hook: str) -> None:
    said = section(hook)
    assert f"\n`{hook}{signature(hooks()[hook])}`\n" in f"\n{said}"
    [*blocks] = re.findall(r"```python\n(.*?)```", said, re.DOTALL)
    assert any(f"def {hook}(" in block for block in blocks)
    assert f"| [`{hook}`](#{hook}) |" in PAGE.read_text()


def test_the_page_has_no_other_hooks() -> None:
    assert set(re.findall(r"^## (weave_\w+)$", PAGE.read_text(), re.MULTILINE)) == set(HOOKS)


@pytest.mark.parametrize("record", record_types(), ids=lambda cls: cls.__name__)
def test_every_field_of_a_record_is_documented_with_its_default(record: type) -> None:
    said = rows(section(record.__name__))
    fields = dataclasses.fields(record)  # type: ignore[arg-type]
    assert list(said) == [f"`{field.name}`" for field in fields]
    for field in fields:
        due = default(field)
        written = said[f"`{field.name}`"].split(" | ")[0].strip("`").replace('"', "'")
        assert written == {"a function": "nothing"}.get(due, due), field.name


@pytest.mark.parametrize("event", event_types(), ids=lambda cls: cls.__name__)
def test_every_field_of_an_event_is_documented(event: type) -> None:
    said = rows(section("Events"))[f"`{event.__name__}`"]
    named = re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", said))  # what is in brackets explains
    assert named == [field.name for field in dataclasses.fields(event)]  # type: ignore[arg-type]


def test_what_an_observer_and_a_run_have_is_documented() -> None:
    said = rows(section("Observer"))
    assert list(said) == [f"`{name}(event)`" for name in observer_methods()]
    for (row, text), event in zip(said.items(), event_types(), strict=True):
        assert text.startswith(f"`{event.__name__}`:"), row
    assert list(rows(section("RunInfo"))) == [f"`{field.name}`" for field in dataclasses.fields(RunInfo)]
    assert set(rows(section("Events"))) == {f"`{event.__name__}`" for event in event_types()}


@pytest.mark.parametrize("protocol", protocols(), ids=lambda cls: cls.__name__)
def test_what_an_executor_gets_is_documented(protocol: type) -> None:
    said = re.findall(r"`(\w+)[`(]", " ".join(rows(section(protocol.__name__))))
    assert said == members(protocol)


def test_the_suites_checks_are_documented() -> None:
    from weave.testing import AdapterSuite, ObserverSuite, ReducerSuite, TargetTypeSuite, TransportSuite

    text = TESTING.read_text()
    for suite in (ReducerSuite, AdapterSuite, TargetTypeSuite, ObserverSuite, TransportSuite):
        said = text.split(f"\n### {suite.__name__}\n", 1)[1].split("\n### ", 1)[0].split("\n## ", 1)[0]
        cells = [line.split(" | ")[0] for line in said.splitlines() if line.startswith("| `test_")]
        assert set(re.findall(r"`(test_\w+)`", " ".join(cells))) == {n for n in dir(suite) if n.startswith("test_")}
        assert all(getattr(suite, name).__doc__ for name in dir(suite) if name.startswith("test_"))


def test_whatever_a_plugin_is_written_with_is_in_one_place() -> None:
    """What hooks are given and return, and the ports that are in it; `weave.plugins` alone need be imported from."""
    given = [*record_types(), *event_types(), *protocols(), executor.Executor, Observer, RunInfo, InPort, OutPort]
    for cls in given:
        assert getattr(weave.plugins, cls.__name__) is cls
        assert cls.__name__ in weave.plugins.__all__
        assert f"`{cls.__name__}`" in PAGE.read_text() or f"### {cls.__name__}\n" in PAGE.read_text()


@pytest.mark.parametrize("hook", HOOKS)
def test_the_example_in_the_code_needs_documented_names_alone(hook: str) -> None:
    [code] = re.findall(r"```python\n(.*?)```", inspect.getdoc(hooks()[hook]) or "", re.DOTALL)
    assert not list(offences(textwrap.dedent(code)))


# --- the examples in the code ---


def example(hook: str) -> dict[str, Any]:
    """The names that a hook's docstring makes, run as a module of its own."""
    text = inspect.getdoc(hooks()[hook]) or ""
    [code] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {"__name__": f"example_of_{hook}"}
    exec(compile(textwrap.dedent(code), f"<the example of {hook}>", "exec"), names)
    return names


def plugin(hook: str) -> Any:
    """The example as a plugin."""
    names = example(hook)
    return type("Example", (), {hook: staticmethod(names[hook]), "__name__": "example"})()


def provided(hook: str) -> Any:
    [record] = PluginSet(plugin(hook)).records
    assert record.hooks == (hook,)
    assert not record.remarks
    return record.provides.get(hook)


def test_the_example_of_target_types() -> None:
    assert provided("weave_target_types")
    given = plugin("weave_target_types")
    [kind] = given.weave_target_types()
    stitched = Needle().stitch(kind.target().output(), ExternalTarget().output("time")).knot(plugins=PluginSet(given))
    assert stitched({}, {})["time"] == 12


def test_the_example_of_reducers() -> None:
    caller = ExternalTarget()
    needle = Needle()
    for name in ("a", "b", "c"):
        needle.stitch(caller.output(name), caller.output("y", reducer="longest"))
    stitched = needle.knot(plugins=PluginSet(plugin("weave_reducers")))
    assert stitched({}, {"a": [1], "b": [1, 2], "c": [3]})["y"] == [1, 2]


def test_the_example_of_adapters() -> None:
    caller = ExternalTarget()
    needle = Needle().stitch(caller.output("x", adapter="halve"), caller.output("y"))
    assert needle.knot(plugins=PluginSet(plugin("weave_adapters")))({}, {"x": 3})["y"] == 1.5


def test_the_example_of_transports() -> None:
    from weave import RemoteTarget
    from weave.remote import run_local

    [kind] = provided("weave_transports")
    assert kind.name == kind.scheme == "calls"
    given, caller = PluginSet(plugin("weave_transports")), ExternalTarget()

    def main(rank: int) -> Any:
        peer = RemoteTarget(1 - rank, transport="calls")
        ways = (caller.output("x"), peer.value("h")), (peer.value("h"), caller.output("y"))
        return Needle().stitch(*ways[rank]).knot(plugins=given)({}, {} if rank else {"x": 3})

    assert run_local(2, main)[1]["y"] == 3


def test_the_example_of_commands(capsys: pytest.CaptureFixture[str]) -> None:
    import argparse

    [command] = provided("weave_commands")
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    assert command.run(parser.parse_args(["--loud"])) == 0
    assert capsys.readouterr().out == "HELLO\n"


def test_the_example_of_an_observer(capsys: pytest.CaptureFixture[str]) -> None:
    caller, f = ExternalTarget(), FunctionTarget("f", abs)
    needle = Needle().stitch(caller.output("x"), f.input()).stitch(f.output(), caller.output("y"))
    needle.knot(plugins=PluginSet(plugin("weave_observer")))({}, {"x": -1})
    assert re.fullmatch(r"f [\d.e-]+ ms\n", capsys.readouterr().out)


# --- tests and users ---


def implemented(path: Path) -> Iterator[str]:
    """The hooks that a file has functions for."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef) and node.name in HOOKS:
            yield node.name


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_has_a_test_beside_its_example(hook: str) -> None:
    tests = [path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)]
    assert any(f"def {hook}(" in path.read_text() for path in tests)  # also in the text of a package that a test makes


def test_a_hook_has_a_user() -> None:
    """weave itself, or a package of this repository: a hook that nobody needs is one that nobody knows to be right."""
    used = {hook for record in builtin_records() for hook in record.hooks}
    for path in (ROOT / "plugins").glob("*/src/**/*.py"):
        used |= set(implemented(path))
    assert set(HOOKS) - used == set(NO_USER)


# --- the snapshot ---


def snapshot() -> str:
    """All that a plugin can depend on, a line each."""
    lines = ["# Written by: python -m tests.plugins.test_documented"]
    lines += ["", "from weave.plugins import", *(f"    {name}" for name in weave.plugins.__all__)]
    for name, function in hooks().items():
        lines += ["", f"hook {name}{signature(function)}"]
    for cls in [*record_types(), PluginRecord, RunInfo, *event_types()]:
        lines += ["", f"{'event' if issubclass(cls, Event) else 'record'} {cls.__name__}"]
        for field in dataclasses.fields(cls):  # type: ignore[arg-type]
            kind = field.type if isinstance(field.type, str) else field.type.__name__
            lines.append(f"    {field.name}: {kind} = {default(field)}")
    lines += ["", "class Observer", *(f"    {n}{signature(getattr(Observer, n))}" for n in observer_methods())]
    for protocol in [*protocols(), executor.Executor]:
        lines += ["", f"protocol {protocol.__name__}"]
        for name in members(protocol):
            member = inspect.getattr_static(protocol, name)
            of = member.fget if isinstance(member, property) else member
            said = signature(of)
            lines.append(f"    {name}{said.removeprefix('()') if isinstance(member, property) else said}")
    return "\n".join(lines) + "\n"


def test_what_plugins_depend_on_has_not_changed() -> None:
    assert snapshot() == SNAPSHOT.read_text(), (
        "what plugins are written against has changed. Where that is meant, and old plugins go on working (see `What a "
        "plugin can rely on` in docs/plugins/hooks.md): python -m tests.plugins.test_documented writes the list anew; then "
        "say it in hooks.md and in CHANGELOG.md"
    )


@pytest.mark.parametrize("cls", [*record_types(), RunInfo, *event_types()], ids=lambda cls: cls.__name__)
def test_records_and_events_are_frozen_and_made_by_keyword(cls: Any) -> None:
    """So that a field may be added."""
    assert cls.__dataclass_params__.frozen
    assert all(field.kw_only for field in dataclasses.fields(cls))


if __name__ == "__main__":
    SNAPSHOT.write_text(snapshot())
    print(f"written: {SNAPSHOT}")
