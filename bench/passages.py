"""Section *passages*: reading inside a transformer of 24 layers, and leaving it early."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import weave
from bench.comparing import Comparison, Entry, Experiment
from bench.pairing import Pace
from bench.peers import nnsight_traces, sewing_kit
from bench.rows import Row

SECTION = "passages"
DEPTH = 24
READ = (3, 9, 15, 21)  # and the model's own output, so that everybody runs all of it
LEAVE_AFTER = 6
BATCH, LENGTH = 4, 64


class Layer(nn.Module):
    """Attention and a feed-forward block, normalised before each."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_feed_forward = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        h = self.before_attention(x)
        split = [part(h).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.query, self.key, self.value)]
        attended = functional.scaled_dot_product_attention(*split).transpose(1, 2).flatten(-2)
        x = x + self.out(attended)
        return x + self.feed_forward(self.before_feed_forward(x))


class Transformer(nn.Module):
    """Layers, and a head."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(width) for _ in range(DEPTH))
        self.head = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class _Left(Exception):
    """Thrown out of a forward by a hook."""


def experiments(pace: Pace) -> list[Experiment]:
    widths = pace.pick((32, 64, 128), (32,))
    return [
        *(Experiment(f"capture, d={width}", partial(_capture, width)) for width in widths),
        *(Experiment(f"stop early, d={width}", partial(_stop, width)) for width in widths),
    ]


def _capture(width: int, pace: Pace) -> list[Row]:
    model, x = _model(width)
    ports = [*(f"layers.{layer}" for layer in READ), ""]

    def by_hand() -> list[Tensor]:
        return _walk(model, x, READ)

    comparison = Comparison(
        section=SECTION, what=f"capture 4 of {DEPTH} layers' outputs, d={width}", same=_same_tensors
    )
    entries = [
        Entry("plain forward", lambda: lambda: model(x), by_hand),
        Entry("forward hooks", lambda: partial(_hooked, model, x)),
        Entry("weave", lambda: _with(x, sewing_kit.reading(weave, model, ports)), target=1.05 if width < 64 else 1.02),
        # These two change a model for good, so each has one of its own.
        Entry("sewing_kit", lambda: _with(x, sewing_kit.reading(sewing_kit.load(), copy.deepcopy(model), ports))),
        Entry("nnsight", lambda: _with(x, nnsight_traces.capturing(copy.deepcopy(model), READ))),
    ]
    with torch.no_grad():
        # The targets leave 2 %, and a forward takes longer the wider it is.
        return comparison.run(entries, pace.times(2 if width < 64 else 3)).rows


def _stop(width: int, pace: Pace) -> list[Row]:
    model, x = _model(width)
    last = LEAVE_AFTER - 1
    ports = [f"layers.{last}"]

    def wanted() -> list[Tensor]:
        return _walk(model, x, (last,))[:1]

    def only() -> Tensor:
        h = x
        for layer in model.layers[:LEAVE_AFTER]:
            h = layer(h)
        return h

    comparison = Comparison(
        section=SECTION, what=f"leave after {LEAVE_AFTER} of {DEPTH} layers, d={width}", same=_same_tensors
    )
    entries = [
        Entry("plain forward", lambda: lambda: model(x), wanted),
        Entry(f"{LEAVE_AFTER} layers alone", lambda: only, lambda: [only()]),
        Entry("a hook that raises", lambda: partial(_hook_that_raises, model, x, last)),
        Entry("weave", lambda: _with(x, sewing_kit.reading(weave, model, ports)), target=0.29),
        Entry("sewing_kit", lambda: _with(x, sewing_kit.reading(sewing_kit.load(), copy.deepcopy(model), ports))),
        Entry("nnsight", lambda: _with(x, nnsight_traces.stopping(copy.deepcopy(model), last))),
    ]
    with torch.no_grad():
        return comparison.run(entries, pace).rows


def _model(width: int) -> tuple[Any, Tensor]:
    torch.manual_seed(0)
    return Transformer(width).eval(), torch.randn(BATCH, LENGTH, width)


def _with(x: Tensor, read: Callable[[Tensor], list[Tensor]]) -> Callable[[], list[Tensor]]:
    return lambda: read(x)


def _walk(model: Any, x: Tensor, wanted: Sequence[int]) -> list[Tensor]:
    """What everybody has to find, without any machinery."""
    found = []
    for place, layer in enumerate(model.layers):
        x = layer(x)
        if place in wanted:
            found.append(x)
    return [*found, model.head(x)]


def _hooked(model: Any, x: Tensor) -> list[Tensor]:
    """Hooks that are there for this call only, as weave's touches are."""
    found: list[Tensor] = []
    handles = [model.layers[at].register_forward_hook(lambda m, args, out: found.append(out)) for at in READ]
    try:
        answer = model(x)
        return [*found, answer]
    finally:
        for handle in handles:
            handle.remove()


def _hook_that_raises(model: Any, x: Tensor, last: int) -> list[Tensor]:
    found: list[Tensor] = []

    def leave(module: nn.Module, args: Any, out: Tensor) -> None:
        found.append(out)
        raise _Left

    handle = model.layers[last].register_forward_hook(leave)
    try:
        model(x)
    except _Left:
        pass
    finally:
        handle.remove()
    return found


def _same_tensors(expected: Sequence[Tensor], got: Sequence[Tensor]) -> bool:
    return len(expected) == len(got) and all(torch.equal(a, b) for a, b in zip(expected, got, strict=True))
