"""Every class, base, signature, field and default of the seed's API holds; what is beyond it is keyword-only."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest
import torch
from torch import nn

import weave
import weave.core
from tests.core_api_table import (
    BESIDE_THE_SEED,
    CLASSES,
    EXCEPTIONS,
    FACTORY,
    FUNCTIONS,
    FURTHER_EXCEPTIONS,
    Appends,
    Class,
    Function,
    Parameter,
)

METHODS = [(name, method) for name, table in CLASSES.items() for method in table.methods]


def is_default(value: Any, due: Any) -> bool:
    if isinstance(due, Function):
        return value.__name__ == due.name and (not due.core or value is getattr(weave.core, due.name))
    if isinstance(due, Appends):
        cls = getattr(weave.core, due.kind)
        return type(value) is cls and value.reducer_fn is cls.default().reducer_fn
    if due is FACTORY:  # how dataclasses show a field with a factory in a signature
        return repr(value) == "<factory>"
    return type(value) is type(due) and value == due


def check_parameters(function: Any, due: tuple[Parameter, ...], *, bound: bool) -> None:
    """The same parameters in the same order, of the same kinds and defaults; others are keyword-only with defaults."""
    found = list(inspect.signature(function).parameters.values())
    if not bound:
        assert found.pop(0).name == "self"
    beyond = [p for p in found if p.kind is inspect.Parameter.KEYWORD_ONLY]
    assert all(p.default is not inspect.Parameter.empty for p in beyond), beyond
    found = [p for p in found if p not in beyond]
    assert len(found) == len(due), f"{function}: {found}"
    for parameter, said in zip(found, due, strict=True):
        name, *default = (said,) if isinstance(said, str) else said
        kinds = {"**": inspect.Parameter.VAR_KEYWORD, "*": inspect.Parameter.VAR_POSITIONAL}
        star = next((s for s in kinds if name.startswith(s)), "")
        assert parameter.name == name.removeprefix(star)
        assert parameter.kind is kinds.get(star, inspect.Parameter.POSITIONAL_OR_KEYWORD), parameter
        if default:
            assert is_default(parameter.default, default[0]), parameter
        else:
            assert parameter.default is inspect.Parameter.empty, parameter


def test_core_exports_the_seeds_names_and_input_args() -> None:
    assert set(weave.core.__all__) == {*CLASSES, *FUNCTIONS, *EXCEPTIONS, *BESIDE_THE_SEED}
    assert len(weave.core.__all__) == len(set(weave.core.__all__))


def test_weave_exports_what_core_does() -> None:
    for name in weave.core.__all__:
        assert getattr(weave, name) is getattr(weave.core, name), name


@pytest.mark.parametrize("name", CLASSES)
def test_bases(name: str) -> None:
    cls = getattr(weave.core, name)
    assert cls.__name__ == name
    assert tuple(base.__name__ for base in cls.__bases__) == CLASSES[name].bases


@pytest.mark.parametrize("name", [n for n, table in CLASSES.items() if table.init is not None])
def test_constructor(name: str) -> None:
    cls, due = getattr(weave.core, name), CLASSES[name].init or ()
    if cls.__init__ is object.__init__:
        check_parameters(cls, due, bound=True)
    else:  # not the class's: a metaclass (ExternalTarget's) has a signature of its own
        check_parameters(cls.__init__, due, bound=False)


@pytest.mark.parametrize("name", [n for n, table in CLASSES.items() if table.fields])
def test_fields(name: str) -> None:
    fields = dataclasses.fields(getattr(weave.core, name))
    due = CLASSES[name].fields
    for field, said in zip(fields, due, strict=False):
        name, *default = (said,) if isinstance(said, str) else said
        assert field.name == name
        assert not field.kw_only
        if not default:
            assert field.default is dataclasses.MISSING
            assert field.default_factory is dataclasses.MISSING
        elif default[0] is FACTORY:
            assert field.default_factory is not dataclasses.MISSING
        else:
            assert is_default(field.default, default[0]), field
    assert len(fields) >= len(due)
    for field in fields[len(due) :]:
        assert field.kw_only
        assert field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


@pytest.mark.parametrize(("name", "method"), METHODS)
def test_methods(name: str, method: str) -> None:
    check_parameters(getattr(getattr(weave.core, name), method), CLASSES[name].methods[method], bound=False)


@pytest.mark.parametrize("name", [n for n, table in CLASSES.items() if table.classmethods])
def test_classmethods(name: str) -> None:
    cls = getattr(weave.core, name)
    for method, due in CLASSES[name].classmethods.items():
        assert isinstance(inspect.getattr_static(cls, method), classmethod)
        check_parameters(getattr(cls, method), due, bound=True)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    check_parameters(getattr(weave.core, name), FUNCTIONS[name], bound=True)


@pytest.mark.parametrize("name", EXCEPTIONS)
def test_exceptions(name: str) -> None:
    assert tuple(base.__name__ for base in getattr(weave.core, name).__bases__) == EXCEPTIONS[name]


@pytest.mark.parametrize("name", FURTHER_EXCEPTIONS)
def test_further_exceptions_derive_from_a_family_and_a_builtin(name: str) -> None:
    family, builtin = FURTHER_EXCEPTIONS[name]
    cls = getattr(weave, name)
    assert cls.__name__ == name
    assert name.endswith("Exception")
    assert issubclass(cls, builtin)
    assert issubclass(cls, getattr(weave, family, Exception))


# --- values, where the signature alone does not say it ---


def test_factories_give_each_its_own() -> None:
    target = weave.FunctionTarget("f", abs)
    one, other = weave.Node(target), weave.Node(target)
    assert one.stitches_to == one.stitches_from == []
    assert one.stitches_to is not other.stitches_to
    assert one.stitches_to is not one.stitches_from
    for cls, reducer in ((weave.InputDescriptor, weave.InputReducer), (weave.OutputDescriptor, weave.OutputReducer)):
        made = cls(target).reducer
        assert type(made) is reducer
        assert made.reducer_fn is reducer().reducer_fn


def test_the_default_functions() -> None:
    call = weave.InputArgs(1, k=2)
    assert weave.default_input_adapter_fn(call) is call
    value = object()
    assert weave.default_output_adapter_fn(value) is value
    added = weave.default_input_reducer_fn(call, weave.InputArgs(3, k=4), weave.InputArgs(), 0, [])
    assert (added.args, added.kwargs) == ([1, 3], {"k": 4})
    assert weave.default_output_reducer_fn("old", value, None, 1, []) is value


def test_reducers_are_called_with_five_arguments() -> None:
    seen: list[Any] = []
    weave.InputReducer(lambda *a: seen.append(a))(1, 2, 3, 4, 5)  # type: ignore[arg-type]
    weave.OutputReducer(lambda *a: seen.append(a))(6, 7, 8, 9, [10])
    assert seen == [(1, 2, 3, 4, 5), (6, 7, 8, 9, [10])]


def test_class_attributes_of_the_seed() -> None:
    assert weave.InputDescriptor.input_name == weave.OutputDescriptor.output_name == ""
    assert weave.InputDescriptor.input_adapter is weave.default_input_adapter_fn
    assert weave.OutputDescriptor.output_adapter is weave.default_output_adapter_fn
    assert weave.InputReducer.reducer_fn is weave.default_input_reducer_fn
    assert weave.OutputReducer.reducer_fn is weave.default_output_reducer_fn
    assert weave.OutputReducer.requires_original_output is False
    assert weave.RemoteTarget.process_group is None
    assert weave.RemoteTarget.blocking is True


def test_remote_data_descriptors_hold_their_fields() -> None:
    tensor = weave.RemoteTensorDataDescriptor("k", "cpu", torch.float32, torch.Size([2]))
    assert (tensor.key, tensor.device, tensor.dtype, tensor.shape) == ("k", "cpu", torch.float32, torch.Size([2]))
    value = weave.RemotePythonDataDescriptor("k", value={"a": 1})
    assert (value.key, value.value) == ("k", {"a": 1})


def test_further_fixed_names() -> None:
    assert inspect.signature(weave.FunctionTarget).parameters["inline"].default is False
    assert set(inspect.signature(weave.fake_tensor).parameters) == {"size", "dtype", "device"}
    assert isinstance(weave.ModuleTarget("m", nn.Identity()).ports(), list)
    for cls in (weave.ModuleTarget, weave.ExternalTarget):
        for method in (cls.input, cls.output):
            assert inspect.signature(method).parameters["call"].default is None
    for name in ("plan", "describe"):
        assert hasattr(weave.StitchedModule, name)
    from weave import passage

    assert {"InputArgs", "PassageInputOverrides", "PassageOutputOverrides"} <= set(passage.__all__)
    assert passage.InputArgs is weave.InputArgs
    from weave import plugins

    assert {"hookimpl", "TargetType", "ReducerDef", "AdapterDef"} <= set(plugins.__all__)


def test_the_table_itself() -> None:
    assert all(isinstance(table, Class) for table in CLASSES.values())
    assert (len(CLASSES), len(FUNCTIONS), len(EXCEPTIONS)) == (24, 4, 8)
