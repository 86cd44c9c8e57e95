"""The built-in target types go through the same hook and records as anybody's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.small import EXT, knot, plus_one
from weave import ConstantTarget, ExternalTarget, FunctionTarget, ModuleTarget, RemoteTarget
from weave.builtin import PLUGINS, registry_of
from weave.plugins import PluginSet, Registry, TargetType
from weave.spi.executor import Executor

OWN = registry_of(PluginSet())
TARGETS = {
    "module": ModuleTarget("m", nn.Identity()),
    "function": FunctionTarget("f", abs),
    "constant": ConstantTarget("c", 1),
    "external": ExternalTarget(),
    "remote": RemoteTarget(1),
}


@pytest.mark.parametrize("name", TARGETS)
def test_each_has_a_record(name: str) -> None:
    record = OWN.target_type(TARGETS[name])
    assert isinstance(record, TargetType)
    assert record.name == name
    assert record.target is type(TARGETS[name])
    if name == "external":
        assert record.executor is None, "the engine itself stands for the boundary"
    else:
        assert isinstance(record.executor, Executor)


def test_the_registry_is_made_of_plugins_like_anybodys() -> None:
    registry = Registry(PLUGINS)
    assert registry.target_type(TARGETS["function"]).name == "function"
    assert registry.adapter("clone", "output").each_call
    plugins = PluginSet()
    assert registry_of(plugins) is registry_of(plugins)


@pytest.mark.parametrize(
    ("name", "owned"), [("module", 1), ("function", 0), ("constant", 0), ("external", 0), ("remote", 0)]
)
def test_what_they_own(name: str, owned: int) -> None:
    assert len(list(OWN.target_type(TARGETS[name]).owns(TARGETS[name]))) == owned


def test_functions_and_constants_own_modules_and_parameters() -> None:
    net, parameter = nn.Linear(1, 1), nn.Parameter(torch.ones(1))
    owns = OWN.target_type(TARGETS["constant"]).owns
    assert list(owns(ConstantTarget("c", net))) == [net]
    assert list(owns(ConstantTarget("c", parameter))) == [parameter]
    assert list(owns(ConstantTarget("c", torch.ones(1)))) == []
    assert list(owns(ConstantTarget("c", [net]))) == []
    assert list(OWN.target_type(TARGETS["function"]).owns(FunctionTarget("f", net))) == [net]


def test_a_subclass_of_a_target_runs_as_its_base_does() -> None:
    class Named(FunctionTarget):
        """A function with a label of its own."""

        label = "mine"

    class Rising(ConstantTarget):
        """Its value is another in every run."""

        @property
        def value(self) -> int:  # type: ignore[override]
            self.reads = getattr(self, "reads", 0) + 1
            return self.reads

        @value.setter
        def value(self, value: Any) -> None:
            pass

    f, c = Named("f", plus_one), Rising("c", 0)
    stitched = knot((EXT.input("x"), f.input()), (f.output(), EXT.output("y")), (c.output(), EXT.output("c")))
    c.reads = 0
    first, second = stitched({"x": 1}, {}), stitched({"x": 1}, {})
    assert (first["y"], first["c"], second["c"]) == (2, 1, 2), "read once a run, and in every one"
