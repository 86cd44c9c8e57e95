"""What a node turns on and leaves on: neither the next node, nor the thread's next user, nor the caller has it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import anyio
import anyio.to_thread
import pytest
import torch

from tests.device.states import (
    Dispatches,
    Functions,
    amp,
    by_hand,
    hooks,
    packs,
    packs_too,
    snapshot,
    state,
)
from tests.small import flow


def _kept(make: Callable[[], AbstractContextManager[Any]]) -> Callable[[list[Any]], None]:
    """Enters a context and leaves it open, kept in the list (torch's inference mode goes off when it is collected)."""

    def enter(kept: list[Any]) -> None:
        kept.append(make())
        kept[-1].__enter__()

    return enter


def _set(switch: Callable[[Any], Any], value: Any, back: Any) -> Callable[[list[Any]], None]:
    return _kept(lambda: by_hand(switch, value, back))


TOGGLES: dict[str, Callable[[list[Any]], None]] = {
    "grad set": _set(torch.set_grad_enabled, False, True),
    "no_grad": _kept(torch.no_grad),
    "inference mode": _kept(torch.inference_mode),
    "autocast": _kept(lambda: amp("cpu")),
    "autocast set": _set(lambda on: torch.set_autocast_enabled("cpu", on), True, False),
    "autocast's dtype": _set(lambda d: torch.set_autocast_dtype("cpu", d), torch.float16, torch.bfloat16),
    "autocast's cache": _set(torch.set_autocast_cache_enabled, False, True),
    "a device": _kept(lambda: torch.device("meta")),
    "hooks": _kept(lambda: hooks(packs, packs)),
    "the default device": _set(torch.set_default_device, "meta", None),
    "a function mode": _kept(Functions),
    "a dispatch mode": _kept(Dispatches),
}
TOGGLE = pytest.mark.parametrize("toggle", TOGGLES)


def _undo(kept: list[Any]) -> None:
    """In the thread in which it was done, which would else be done by the collector in another."""
    while kept:
        with contextlib.suppress(Exception):
            kept.pop().__exit__(None, None, None)


async def _toggled(toggle: str) -> tuple[Any, Any, Any]:
    """What the next node sees, what the run's thread is left with, and what the caller is."""
    kept: list[Any] = []
    seen: list[Any] = []

    def look(x: Any = None) -> None:
        seen.append(snapshot())

    await flow(lambda x: TOGGLES[toggle](kept), look).with_options(max_workers=1).run({"x": 1}, {})
    await anyio.to_thread.run_sync(look)
    after = snapshot()
    await anyio.to_thread.run_sync(_undo, kept)
    return (*seen, after)


@TOGGLE
def test_what_a_node_leaves_on_does_not_reach_the_next(toggle: str) -> None:
    before = snapshot()
    following, _, _ = anyio.run(_toggled, toggle)
    assert following == before


@TOGGLE
def test_what_a_node_leaves_on_does_not_stay_in_anyios_thread(toggle: str) -> None:
    before = snapshot()
    _, thread, _ = anyio.run(_toggled, toggle)
    assert thread == before


@TOGGLE
def test_what_a_node_leaves_on_does_not_reach_the_caller(toggle: str) -> None:
    before = snapshot()
    _, _, caller = anyio.run(_toggled, toggle)
    assert caller == before


@pytest.mark.parametrize(
    ("name", "leave"),
    [
        ("no_grad", _set(torch.set_grad_enabled, True, False)),
        ("inference_mode", _kept(lambda: torch.inference_mode(False))),
        ("autocast to half", _kept(lambda: amp("cpu", enabled=False))),
        ("autocast to half", _kept(lambda: amp("cpu", dtype=torch.bfloat16, cache_enabled=False))),
        ("hooks", _kept(lambda: hooks(packs_too, packs_too))),
        ("a device", _kept(lambda: torch.device("cpu"))),
        ("a device", _set(torch.set_default_device, "cpu", None)),
    ],
)
def test_the_callers_own_is_on_again_for_the_next(name: str, leave: Callable[[list[Any]], None]) -> None:
    seen: list[Any] = []
    kept: list[Any] = []

    async def main() -> None:
        with state(name) as callers:
            await (
                flow(lambda x: leave(kept), lambda x: seen.append(snapshot()))
                .with_options(max_workers=1)
                .run({"x": 1}, {})
            )
            assert snapshot() == callers
        await anyio.to_thread.run_sync(_undo, kept)
        seen.append(callers)

    anyio.run(main)
    assert seen[0] == seen[1]
