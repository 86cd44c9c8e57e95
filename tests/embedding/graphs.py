"""Graphs and modules that an application embeds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from weave import ExternalTarget, FunctionTarget, ModuleTarget, Needle, StitchedModule

EXT = ExternalTarget()


def spread(*functions: Callable[..., Any]) -> StitchedModule:
    """Every function gets the caller's x and gives it what it returns, under its own name."""
    needle = Needle()
    for function in functions:
        target = FunctionTarget(function.__name__, function)
        needle.stitch(EXT.input("x"), target.input()).stitch(target.output(), EXT.output(target.name))
    return needle.knot()


def scorer(fetch: Callable[..., Any]) -> tuple[StitchedModule, Callable[[float, str], float]]:
    """Encoder and head, with what `fetch` knows of a user added between; also the same as plain torch."""
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8)).requires_grad_(False)
    head = nn.Linear(8, 1).requires_grad_(False)
    e, h, f = ModuleTarget("encoder", encoder), ModuleTarget("head", head), FunctionTarget("fetch", fetch)
    stitched = (
        Needle()
        .stitch(EXT.input("features"), e.input(""))
        .stitch(EXT.input("user"), f.input())
        .stitch(e.output("1"), h.input("", reducer="sum"))
        .stitch(f.output(), h.input("", reducer="sum"))
        .stitch(h.output(""), EXT.output("score"))
        .knot()
    )

    def plainly(value: float, user: str) -> float:
        return head(encoder[:2](features(value)) + known_of(user)).item()

    return stitched, plainly


def features(value: float) -> torch.Tensor:
    return torch.full((1, 4), value)


def known_of(user: str) -> torch.Tensor:
    return torch.full((1, 8), float(len(user)))


class Paused(nn.Module):
    """Three layers. The second waits, in its thread, until it is told to go on."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Identity() for _ in range(3))
        self.entered, self.go_on = threading.Event(), threading.Event()
        self.reached: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for index, layer in enumerate(self.layers):
            self.reached.append(index)
            if index == 1:
                self.entered.set()
                assert self.go_on.wait(60)
            x = layer(x)
        return x

    def graph(self) -> StitchedModule:
        """Its three outputs, each of them a port at which the forward can be left."""
        target, needle = ModuleTarget("paused", self), Needle()
        needle.stitch(EXT.input("x"), target.input(""))
        for index in range(3):
            needle.stitch(target.output(f"layers.{index}"), EXT.output(str(index)))
        return needle.knot()
