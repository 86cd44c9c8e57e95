"""The registry: records by class and by name, conflicts that name both sides, names that are nearly right."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from torch import nn

from weave import ConstantTarget, FunctionTarget, ModuleTarget, PluginException
from weave.builtin import PLUGINS
from weave.graph.targets import TargetWithInput, TargetWithOutput
from weave.plugins import AdapterDef, ReducerDef, Registry, TargetType, hookimpl


class Silent:
    def fire(self, firing: Any) -> None:
        pass


class Sensor(TargetWithInput, TargetWithOutput):
    pass


class Thermometer(Sensor):
    pass


def one(acc: Any, value: Any, *more: Any) -> Any:
    return value


class Mine:
    """A plugin with something of every kind."""

    @hookimpl
    def weave_target_types(self) -> list[TargetType]:
        return [TargetType(name="sensor", target=Sensor, executor=Silent())]

    @hookimpl
    def weave_reducers(self) -> list[ReducerDef]:
        return [
            ReducerDef(name="median", fn=one, kind="output"),
            ReducerDef(name="median", fn=one, kind="input"),
            ReducerDef(name="ours", fn=one, kind="output", requires_original_output=True),
        ]

    @hookimpl
    def weave_adapters(self) -> tuple[AdapterDef, ...]:
        return AdapterDef(name="norm", fn=abs), AdapterDef(name="only", fn=abs, kind="input")


class Other(Mine):
    """Claims the same names."""


class Partial:
    @hookimpl
    def weave_adapters(self) -> list[AdapterDef]:
        return [AdapterDef(name="half", fn=abs)]

    def weave_unmarked(self) -> None:
        """Not a hook: nobody said hookimpl."""


# --- records ---


@pytest.mark.parametrize(
    "record",
    [
        TargetType(name="t", target=Sensor, executor=Silent()),
        ReducerDef(name="r", fn=one, kind="input"),
        AdapterDef(name="a", fn=abs),
    ],
    ids=lambda r: type(r).__name__,
)
def test_records_are_frozen_and_by_keyword(record: Any) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.name = "other"
    with pytest.raises(TypeError):
        type(record)("name", Sensor, None)
    # So that a new field breaks nobody: whatever is not asked for has a default.
    required = [f.name for f in dataclasses.fields(record) if f.default is f.default_factory is dataclasses.MISSING]
    assert len(required) <= 3
    assert all(f.kw_only for f in dataclasses.fields(record))


def test_a_target_type_is_by_default_one_output_and_one_input() -> None:
    record = TargetType(name="t", target=Sensor, executor=Silent())
    assert set(record.sources) == {"output"}
    assert set(record.destinations) == {"input"}
    assert list(record.owns(Sensor())) == []
    assert record.prepare is None
    assert record.resources is None


# --- look-ups ---


def test_what_a_plugin_provides_is_found() -> None:
    registry = Registry([Mine()])
    assert registry.target_type(Sensor()).name == "sensor"
    assert registry.reducer("ours", "output").requires_original_output
    assert registry.reducer("median", "input").kind == "input"
    assert registry.adapter("norm", "output").fn is abs


def test_modules_may_be_plugins_as_weaves_own_are() -> None:
    registry = Registry([*PLUGINS, Mine(), Partial()])
    assert registry.target_type(ModuleTarget("m", nn.Identity())).name == "module"
    assert registry.adapter("half", "input").name == "half"
    assert registry.adapter("clone", "input").name == "clone"


def test_subclasses_have_their_bases_record_unless_they_have_one() -> None:
    assert Registry([Mine()]).target_type(Thermometer()).name == "sensor"

    class Exact:
        @hookimpl
        def weave_target_types(self) -> list[TargetType]:
            return [TargetType(name="thermometer", target=Thermometer, executor=Silent())]

    registry = Registry([Mine(), Exact()])
    assert registry.target_type(Thermometer()).name == "thermometer"
    assert registry.target_type(Sensor()).name == "sensor"


def test_a_target_that_nobody_knows() -> None:
    with pytest.raises(
        PluginException, match=r"no executor is registered for Sensor.*known: .*FunctionTarget"
    ) as raised:
        Registry(PLUGINS).target_type(Sensor())
    assert raised.value.name == "Sensor"
    with pytest.raises(PluginException):
        Registry([]).target_type(FunctionTarget("f", abs))


@pytest.mark.parametrize(
    ("name", "kind", "near"),
    [("medium", "output", "median"), ("medain", "input", "median"), ("zzz", "output", ""), ("ours", "input", "")],
)
def test_a_reducer_that_nobody_provides(name: str, kind: str, near: str) -> None:
    with pytest.raises(PluginException) as raised:
        Registry([Mine()]).reducer(name, kind)
    assert raised.value.name == name
    assert tuple(raised.value.nearest) == ((near,) if near else ())
    for words in (f"{kind} reducer", repr(name), f"did you mean {near!r}" if near else "there are median"):
        assert words in str(raised.value)


def test_an_adapter_that_nobody_provides() -> None:
    with pytest.raises(PluginException, match="no adapter is called 'nrom'; did you mean 'norm'"):
        Registry([Mine()]).adapter("nrom", "input")
    with pytest.raises(PluginException, match="there are none"):
        Registry([]).adapter("norm", "input")


def test_an_adapter_for_the_other_kind_of_port() -> None:
    registry = Registry([Mine()])
    assert registry.adapter("only", "input").name == "only"
    with pytest.raises(PluginException, match="'only' is for input ports, not for output ports"):
        registry.adapter("only", "output")


# --- conflicts ---


def test_two_plugins_that_claim_one_name_are_both_named_when_it_is_used() -> None:
    registry = Registry([Mine(), Other(), Partial()])  # no error yet: nobody has asked
    for look_up in (
        lambda: registry.reducer("median", "output"),
        lambda: registry.adapter("norm", "input"),
        lambda: registry.target_type(Sensor()),
    ):
        with pytest.raises(PluginException, match="claimed by several plugins") as raised:
            look_up()
        said = str(raised.value)
        assert "Leave out all but one" in said
        owners = said.split("plugins: ")[1].split(".")[0].split(", ")
        assert len(set(owners)) == 2
    assert registry.adapter("half", "input").name == "half", "what is not disputed works"


def test_a_plugin_that_claims_a_name_of_weaves_own() -> None:
    class Clone:
        @hookimpl
        def weave_adapters(self) -> list[AdapterDef]:
            return [AdapterDef(name="clone", fn=abs)]

    with pytest.raises(PluginException, match=r"'clone' is claimed by several plugins: .*weave\.builtin\.adapters"):
        Registry([*PLUGINS, Clone()]).adapter("clone", "input")


def test_one_name_for_inputs_and_for_outputs_is_no_conflict() -> None:
    registry = Registry([Mine()])
    assert registry.reducer("median", "input") is not registry.reducer("median", "output")


def test_registries_do_not_share() -> None:
    first, second = Registry([Mine()]), Registry(PLUGINS)
    assert first.target_type(Sensor()).name == "sensor"
    with pytest.raises(PluginException):
        second.target_type(Sensor())
    with pytest.raises(PluginException):
        first.target_type(ConstantTarget("c", 1))
