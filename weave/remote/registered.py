"""Classes whose objects travel, beside tensors and plain values: weave's own, and yours by `register_codec`.

A name on the wire is looked up in what this process has registered. Nothing is ever imported, or made, by a name that
came from a peer, which is why a class must be registered on every rank that sends or receives it.
"""

from __future__ import annotations

import dataclasses
import inspect
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch

from weave.graph.args import InputArgs
from weave.remote.tensors import DTYPES

C = TypeVar("C", bound=type)

_LONGEST = 256


class Codec(NamedTuple):
    """How one class travels. `fields`: its plain form is a dict of its attributes, and messages write them so."""

    kind: Any
    name: str
    to_plain: Callable[[Any], Any]
    from_plain: Callable[[Any], Any]
    fields: bool = False


_lock = threading.Lock()
_by_kind: dict[Any, Codec] = {}
_by_name: dict[str, Codec] = {}
_PLAIN = (type(None), bool, int, float, str, bytes, list, tuple, dict, torch.Tensor, torch.nn.Parameter)


def register_codec(
    cls: type | torch.layout, name: str, to_plain: Callable[[Any], Any], from_plain: Callable[[Any], Any]
) -> None:
    """Let objects of a class travel between ranks. Give it on every rank, under the same name.

    Args:
        cls: exactly this class, no subclass. Or a layout, such as `torch.sparse_coo`: tensors of that layout.
        name: what it is called on the wire.
        to_plain: makes of an object what travels: tensors, plain values and containers of them, other registered classes.
        from_plain: makes an object of that again. What it gets came from another rank: let it check.

    Raises:
        ValueError: the name or the class is registered otherwise, or such values travel as they are.
    """
    _register(Codec(cls, name, to_plain, from_plain))


def register_class(cls: C, name: str | None = None) -> C:
    """Let objects of a dataclass or a named tuple travel between ranks, by their fields. Also a decorator.

    The receiving rank calls the class with the fields that its constructor takes.

    Args:
        cls: exactly this class, no subclass.
        name: what it is called on the wire; by default its module and name, which must then be the same on every rank.

    Raises:
        TypeError: it is neither, or its fields don't suffice to make one: use `register_codec`.
        ValueError: as for `register_codec`.
    """
    called = name if name is not None else f"{getattr(cls, '__module__', '')}.{getattr(cls, '__qualname__', '')}"
    if isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_make"):
        kind: Any = cls
        names = tuple(kind._fields)
        _register(
            Codec(cls, called, lambda value: value._asdict(), lambda plain: kind._make(_held(plain, names)), True)
        )
        return cls
    if not (isinstance(cls, type) and dataclasses.is_dataclass(cls)):
        raise TypeError(f"register_class({cls!r}): neither a dataclass nor a named tuple: use register_codec(...)")
    names = tuple(field.name for field in dataclasses.fields(cls) if field.init)
    if "__dataclass_params__" not in cls.__dict__ or set(inspect.signature(cls).parameters) != set(names):
        raise TypeError(
            f"register_class({cls.__qualname__}): its constructor doesn't take just its fields (it derives from a dataclass "
            "without being one itself, has an __init__ of its own, or InitVar): use register_codec(...)"
        )

    def from_fields(plain: Any) -> Any:
        return cls(**dict(zip(names, _held(plain, names), strict=True)))

    _register(Codec(cls, called, lambda value: {name: getattr(value, name) for name in names}, from_fields, True))
    return cls


def _held(plain: Any, names: tuple[str, ...]) -> list[Any]:
    if type(plain) is not dict or set(plain) != set(names):
        came = sorted(map(str, plain)) if type(plain) is dict else type(plain).__name__
        raise ValueError(
            f"its fields are {sorted(names)} here, and {came} came: the ranks run different versions of it"
        )
    return [plain[name] for name in names]


def codec_for(value: Any) -> Codec | None:
    """How a value travels, if its class is registered."""
    kind = type(value)
    if kind is torch.Tensor:
        return _by_kind.get(value.layout) if value.layout is not torch.strided else None
    return _by_kind.get(kind)


def codec_named(name: str) -> Codec | None:
    """What is registered under a name."""
    return _by_name.get(name)


def _register(codec: Codec) -> None:
    if not isinstance(codec.kind, type | torch.layout):
        raise TypeError(f"register_codec({codec.kind!r}): a class, or a layout of tensors")
    said = getattr(codec.kind, "__qualname__", str(codec.kind))
    if codec.kind in _PLAIN or codec.kind is torch.strided:
        raise ValueError(f"register_codec({said}): these travel as they are")
    if not isinstance(codec.name, str) or not codec.name.isprintable() or not 0 < len(codec.name) <= _LONGEST:
        raise ValueError(
            f"register_codec({said}, name={codec.name!r}): a name of at most {_LONGEST} printable characters"
        )
    with _lock:
        for known in (_by_name.get(codec.name), _by_kind.get(codec.kind)):
            # The same class again is no mistake: a cell of a notebook that is run twice.
            if known is not None and not (known.name == codec.name and _same(known.kind, codec.kind)):
                raise ValueError(
                    f"register_codec({said}, name={codec.name!r}): {_text(known.kind)} is registered as {known.name!r}"
                )
        replaced = _by_name.get(codec.name)
        if replaced is not None:
            del _by_kind[replaced.kind]
        _by_name[codec.name] = _by_kind[codec.kind] = codec


def _same(one: Any, other: Any) -> bool:
    return one is other or _text(one) == _text(other)


def _text(kind: Any) -> str:
    return f"{kind.__module__}.{kind.__qualname__}" if isinstance(kind, type) else str(kind)


# --- weave's own ---
# What comes is checked before it is used: `bytearray(10**12)` would set that much memory aside.


def _of(plain: Any, *kinds: type) -> Any:
    """The elements of a tuple, of exactly these types."""
    if type(plain) is not tuple or tuple(map(type, plain)) != kinds:
        raise ValueError(f"not ({', '.join(kind.__name__ for kind in kinds)})")
    return plain


def _only(plain: Any, kind: type) -> Any:
    if type(plain) is not kind:
        raise ValueError(f"a {type(plain).__name__}, not a {kind.__name__}")
    return plain


def _slice(plain: Any) -> slice:
    if type(plain) is not tuple or len(plain) != 3:
        raise ValueError("not three values")
    return slice(*plain)


def _size(plain: Any) -> torch.Size:
    if not all(type(n) is int and 0 <= n < 1 << 63 for n in _only(plain, tuple)):
        raise ValueError("not a shape")
    return torch.Size(plain)


def _arguments(plain: Any) -> InputArgs:
    args, kwargs = _held(plain, ("args", "kwargs"))
    if not all(type(name) is str for name in _only(kwargs, dict)):
        raise ValueError("a keyword that is no string")
    return InputArgs.of(_only(args, list), kwargs)


def _named(known: dict[str, Any]) -> Callable[[Any], Any]:
    return lambda plain: known[_only(plain, str)]


def _torch_name(value: Any) -> str:
    return str(value).removeprefix("torch.")


def _constants(kind: type) -> dict[str, Any]:
    return {_torch_name(value): value for value in vars(torch).values() if isinstance(value, kind)}


for _codec in (
    Codec(InputArgs, "InputArgs", lambda v: {"args": v.args, "kwargs": v.kwargs}, _arguments, True),
    Codec(complex, "complex", lambda v: (v.real, v.imag), lambda p: complex(*_of(p, float, float))),
    Codec(bytearray, "bytearray", bytes, lambda p: bytearray(_only(p, bytes))),
    Codec(set, "set", list, lambda p: set(_only(p, list))),
    Codec(frozenset, "frozenset", list, lambda p: frozenset(_only(p, list))),
    Codec(range, "range", lambda v: (v.start, v.stop, v.step), lambda p: range(*_of(p, int, int, int))),
    Codec(slice, "slice", lambda v: (v.start, v.stop, v.step), _slice),
    Codec(type(...), "Ellipsis", lambda _: None, lambda _: ...),
    Codec(OrderedDict, "OrderedDict", dict, lambda p: OrderedDict(_only(p, dict))),
    Codec(torch.Size, "torch.Size", tuple, _size),
    Codec(torch.device, "torch.device", str, lambda p: torch.device(_only(p, str))),
    Codec(torch.dtype, "torch.dtype", _torch_name, _named(DTYPES)),
    Codec(torch.layout, "torch.layout", _torch_name, _named(_constants(torch.layout))),
    Codec(torch.memory_format, "torch.memory_format", _torch_name, _named(_constants(torch.memory_format))),
):
    _register(_codec)

# What `torch.max(x, dim=0)` and its like return.
for _name, _kind in vars(torch.return_types).items():
    if isinstance(_kind, type) and issubclass(_kind, tuple) and _name == _kind.__name__:
        _register(Codec(_kind, f"torch.return_types.{_name}", tuple, _kind))
