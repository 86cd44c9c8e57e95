"""Touching a module for a while: the one mechanism by which a passage sees and changes calls.

`nn.Module.__call__` looks at the attribute `_compiled_call_impl` first and calls that in place of `_call_impl`, hooks
and all. While a run is under way that uses a submodule, a `Touch` stands there in the instance's `__dict__`; it asks
whether a passage is current in this context and otherwise falls through to what was there before. So a plain call from
another thread is just that, the user's hooks run inside, and skipping a module is not calling it.

Tried and rejected:
- forward (pre-)hooks put on last: they run inside the wrapping for backward hooks, so what they see is not what the
  caller passes and receives; a hook put on later runs behind ours; and skipping the forward is impossible;
- an instance-level `forward`: a deepcopy made during a run keeps a wrapper bound to the original's weights, and hooks
  are outside it;
- swapping `__class__`: breaks pickle, `type()`, Hugging Face's registries and torch.compile's guards;
- wrapping every submodule once and for all: 1.5 times the plain forward, for everybody, always.

`_compiled_call_impl` is a private name of torch. It is written straight into `__dict__`, past any `__setattr__` a user's
class guards itself with; torch leaves it out of pickles and deep copies, and `tests/passage/test_torch_canary.py` pins
what is relied on. torch reads the attribute twice (`is not None`, then the call); no other thread can run in between,
because the interpreter gives up its lock at calls and backward jumps only, and there is none between the two reads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from weave.passage.passage import Passage

ATTRIBUTE = "_compiled_call_impl"

current: ContextVar[Passage | None] = ContextVar("weave_passage", default=None)

_ABSENT: Any = object()
_lock = threading.Lock()


def _no_call_impl() -> None:
    return None


class Touch:
    """What stands in a touched module's `__dict__`."""

    __slots__ = ("module", "previous", "users")

    def __init__(self, module: nn.Module, previous: Any) -> None:
        self.module = module
        self.previous = previous
        self.users = 0

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Whoever calls the touched module calls this."""
        if torch.compiler.is_dynamo_compiling():
            # A compiled plain call of the model beside a run traces this: a port can't be in what is compiled.
            return self.untouched(args, kwargs)
        return onward(current.get(), self, args, kwargs)

    def untouched(self, args: Any, kwargs: Any) -> Any:
        """The call as it would have been without us: compiled where `module.compile()` made it so."""
        if self.previous is None or self.previous is _ABSENT:
            return self.module._call_impl(*args, **kwargs)  # type: ignore[no-untyped-call]
        return self.previous(*args, **kwargs)

    # A class that copies its own __dict__ would carry us into the copy, where we would call the original's weights.
    # In a copy or a pickle we are therefore nothing: `None` is what torch has there for "not compiled".
    def __copy__(self) -> None:
        return None

    def __deepcopy__(self, memo: Any) -> None:
        return None

    def __reduce__(self) -> tuple[Any, ...]:
        return _no_call_impl, ()


def onward(
    passage: Passage | None, touch: Touch, args: Any, kwargs: Any, base: Callable[..., Any] | None = None
) -> Any:
    """Give a call to the innermost passage, from `passage` outwards, that wants something of this module.

    `base`: what to call in the end, if not the module as it is without us.
    """
    key = id(touch.module)
    while passage is not None:
        station = passage.stations.get(key)
        if station is not None and passage.is_open():
            return passage.call(station, touch, args, kwargs, base)
        passage = passage.outer
    return touch.untouched(args, kwargs) if base is None else base(*args, **kwargs)


def leave_to_python(function: Callable[..., Any], *, and_what_it_calls: bool) -> None:
    """Have dynamo leave a function alone where it would begin a compiled region with it.

    Between a compiled wrapper and the forward of a touched module lie our frames: dynamo shall pick up the forward itself,
    as it does without us; or nothing at all, where the call belongs to a passage. By a private function of torch; where
    that is missing, such a port is just not reached, and the run says so.
    """
    frames: Any = getattr(torch._C._dynamo, "eval_frame", None)
    if hasattr(frames, "set_code_exec_strategy"):
        skip, default = frames._FrameAction.SKIP, frames._FrameAction.DEFAULT
        strategy = frames._FrameExecStrategy(skip, skip if and_what_it_calls else default)
        frames.set_code_exec_strategy(function.__code__, strategy)


for ours in (Touch.__call__, Touch.untouched, onward):
    leave_to_python(ours, and_what_it_calls=False)


def touch_all(modules: Iterable[nn.Module]) -> list[Touch]:
    """Touch modules, one more user each. Give the result to `release`."""
    touches = []
    with _lock:
        for module in modules:
            state = module.__dict__
            there = state.get(ATTRIBUTE, _ABSENT)
            if type(there) is not Touch:
                there = state[ATTRIBUTE] = Touch(module, there)
            there.users += 1
            touches.append(there)
    return touches


def release(touches: Iterable[Touch]) -> None:
    """One user less each; the last one puts back what was there. What the user put there meanwhile stays."""
    with _lock:
        for touch in touches:
            touch.users -= 1
            state = touch.module.__dict__
            if touch.users == 0 and state.get(ATTRIBUTE) is touch:
                if touch.previous is _ABSENT:
                    del state[ATTRIBUTE]
                else:
                    state[ATTRIBUTE] = touch.previous
