from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
import torch
from weave import StitchedModule

from traces import Traces

torch.set_num_threads(1)

Way = Callable[[StitchedModule, dict[str, Any]], Any]


@pytest.fixture
def traces() -> Traces:
    return Traces()


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["inline", "asyncio", "trio"])
def way(request: pytest.FixtureRequest) -> Way:
    """Runs a graph once, by a synchronous call or on a loop."""

    def run(stitched: StitchedModule, inputs: dict[str, Any]) -> Any:
        if request.param == "inline":
            return stitched(inputs, {})
        return anyio.run(stitched.run, inputs, {}, backend=request.param)

    run.driver = "inline" if request.param == "inline" else "tasks"  # type: ignore[attr-defined]
    return run
