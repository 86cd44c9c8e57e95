"""Adapters and reducers by name, for what transformers' modules take and return.

A block gives a tensor in one release and a tuple in another, an attention a tuple with its weights, a model a
`ModelOutput`; blocks are called with the hidden states, a mask, positions, a cache. `hf.hidden` means the hidden states
among them: as an adapter it takes them out, as a reducer it puts new ones in and leaves the rest as it was.

Nothing here imports transformers: a `ModelOutput` is a dict with names.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

from weave import InputArgs, StitchedModuleException
from weave.plugins import AdapterDef, ReducerDef, hookimpl

_KEY = "last_hidden_state"  # a ModelOutput's
_ARGUMENT = "hidden_states"  # a call's


def take_hidden(value: Any) -> Any:
    """The hidden states in a value: a tensor itself, a tuple's first, a `ModelOutput`'s `last_hidden_state`.

    Of a call's arguments (an `InputArgs`): an `InputArgs` with `hidden_states=` or the first positional alone, as a
    positional, so that any module can be called with it.
    """
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, InputArgs):
        return InputArgs(value.kwargs[_ARGUMENT] if _by_name(value) else take_hidden(value.args[0]))
    if isinstance(value, dict) and isinstance(value.get(_KEY), torch.Tensor):
        return value[_KEY]
    if isinstance(value, tuple | list) and value and isinstance(value[0], torch.Tensor):
        return value[0]
    raise _refused("hf.hidden", value)


def _by_name(call: InputArgs) -> bool:
    """Whether the hidden states of a call are passed by name. Raises where there are none."""
    if isinstance(call.kwargs.get(_ARGUMENT), torch.Tensor):
        return True
    if not call.args or not isinstance(call.args[0], torch.Tensor | tuple | list | dict):
        raise _refused("hf.hidden", call)
    return False


def put_hidden_in_output(acc: Any, value: Any, original: Any, index: int, every: list[Any]) -> Any:
    """What the submodule returned, with other hidden states. The newest of several stitches wins."""
    return _put(take_hidden(value), original)


def _put(new: torch.Tensor, original: Any) -> Any:
    if isinstance(original, torch.Tensor):
        return new
    take_hidden(original)  # refuses what has no hidden states
    if isinstance(original, dict):
        changed = copy.copy(original)  # keeps the type with whatever it carries
        changed[_KEY] = new
        return changed
    if hasattr(original, "_make"):  # a named tuple
        return original._make((new, *original[1:]))
    return type(original)((new, *original[1:]))


def put_hidden_in_input(acc: InputArgs, value: InputArgs, original: InputArgs, index: int, every: Any) -> InputArgs:
    """What the submodule was called with, with other hidden states. The newest of several stitches wins.

    Where there was no call before (a function's input, the caller's) they are all there is.
    """
    hidden: InputArgs = take_hidden(value)
    if not original.args and not original.kwargs:
        return hidden
    [new] = hidden.args
    if _by_name(original):
        return InputArgs(*original.args, **{**original.kwargs, _ARGUMENT: new})
    return InputArgs(_put(new, original.args[0]), *original.args[1:], **original.kwargs)


def _field(name: str) -> Callable[[Any], Any]:
    def take(value: Any) -> Any:
        """That field of a `ModelOutput`; of a call with one, an `InputArgs` of it alone."""
        if isinstance(value, InputArgs) and value.args:
            return InputArgs(take(value.args[0]))
        if not isinstance(value, dict) or value.get(name) is None:
            raise _refused(f"hf.{name}", value)
        return value[name]

    return take


def _refused(what: str, value: Any) -> StitchedModuleException:
    if isinstance(value, InputArgs):
        said = f"a call with {len(value.args)} positional argument(s) and {', '.join(value.kwargs) or 'no keywords'}"
        return StitchedModuleException(f'"{what}": there are no such values in {said}')
    if isinstance(value, dict):
        return StitchedModuleException(f'"{what}": a {type(value).__name__} with {", ".join(map(str, value))} has none')
    hint = ""
    if isinstance(value, tuple | list):
        hint = (
            "; was the model called with return_dict=False?" if what != "hf.hidden" else " that begins with no tensor"
        )
    return StitchedModuleException(f'"{what}": there is none in a {type(value).__name__}{hint}')


@hookimpl
def weave_adapters() -> list[AdapterDef]:
    """`hf.hidden`, `hf.logits`, `hf.last_hidden_state`."""
    return [
        AdapterDef(name="hf.hidden", fn=take_hidden, each_call=True),
        AdapterDef(name="hf.logits", fn=_field("logits"), each_call=True),
        AdapterDef(name="hf.last_hidden_state", fn=_field(_KEY), each_call=True),
    ]


@hookimpl
def weave_reducers() -> list[ReducerDef]:
    """`hf.hidden`, for inputs and for outputs."""
    return [
        ReducerDef(name="hf.hidden", fn=put_hidden_in_input, kind="input"),
        ReducerDef(name="hf.hidden", fn=put_hidden_in_output, kind="output", requires_original_output=True),
    ]
