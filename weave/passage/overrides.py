"""Overrides by port name, as the seed's API hands them out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from weave.graph.args import InputArgs
from weave.graph.descriptors import InputDescriptor, IODescriptor, OutputDescriptor, port_text
from weave.graph.reducers import default_input_reducer_fn, reduce_inputs, reduce_outputs

Resolved: TypeAlias = Callable[[IODescriptor], tuple[Callable[..., Any], Callable[..., Any], bool]]


class PassageInputOverrides(dict[str, Any]):
    """By input name: an `InputArgs`, or where a reducer looks at it, `f(original, name=None, module=None)`."""


class PassageOutputOverrides(dict[str, Any]):
    """By output name: a value, or where a reducer requires it, `f(original, name=None, module=None)`."""


def input_overrides_of(values: Mapping[IODescriptor, Any], resolve: Resolved) -> PassageInputOverrides:
    """Reduce values by input port. `values`: by destination descriptor, in the order in which they meet."""
    made = PassageInputOverrides()
    for name, (ports, brought) in _by_name(values, InputDescriptor).items():
        reducers = [None if (r := resolve(p)[1]) is default_input_reducer_fn else r for p in ports]
        args = [v if isinstance(v, InputArgs) else InputArgs(v) for v in brought]

        def override(
            original: InputArgs,
            module_name: str | None = None,
            module: Any = None,
            *,
            reducers: Any = reducers,
            args: Any = args,
            said: str = port_text(ports[0]),
        ) -> InputArgs:
            return reduce_inputs(reducers, args, original, said)

        made[name] = override(InputArgs()) if all(r is None for r in reducers) else override
    return made


def output_overrides_of(values: Mapping[IODescriptor, Any], resolve: Resolved) -> PassageOutputOverrides:
    """Reduce values by output port. `values`: by destination descriptor, in the order in which they meet."""
    made = PassageOutputOverrides()
    for name, (ports, brought) in _by_name(values, OutputDescriptor).items():
        resolved = [resolve(p) for p in ports]

        def override(
            original: Any,
            module_name: str | None = None,
            module: Any = None,
            *,
            reducers: Any = tuple(r[1] for r in resolved),
            brought: Any = brought,
        ) -> Any:
            return reduce_outputs(reducers, brought, original)

        made[name] = override if any(r[2] for r in resolved) else override(None)
    return made


def _by_name(values: Mapping[IODescriptor, Any], kind: type) -> dict[str, tuple[list[IODescriptor], list[Any]]]:
    groups: dict[str, tuple[list[IODescriptor], list[Any]]] = {}
    for port, value in values.items():
        if isinstance(port, kind):
            ports, brought = groups.setdefault(port.name, ([], []))
            ports.append(port)
            brought.append(value)
    return groups
