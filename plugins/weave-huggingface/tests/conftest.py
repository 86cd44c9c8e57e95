from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
import weave_huggingface
from hf_families import FAMILIES, Family

from weave import Needle, StitchedModule
from weave.plugins import PluginSet

torch.set_num_threads(1)  # many small tensors: more threads would only take turns
transformers.utils.logging.set_verbosity_error()  # what it says of tiny configs is no news


@pytest.fixture(params=FAMILIES, ids=lambda family: family.name)
def family(request: pytest.FixtureRequest) -> Family:
    return request.param


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def tie() -> Callable[..., StitchedModule]:
    """Ties stitches with the plugin as if it were installed."""

    def tie(*stitches: Any, **options: Any) -> StitchedModule:
        needle = Needle()
        for source, destination in stitches:
            needle.stitch(source, destination)
        return needle.knot(plugins=PluginSet(weave_huggingface), **options)

    return tie
