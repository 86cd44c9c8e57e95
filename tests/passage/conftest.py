from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Each test draws the same weights, alone or among others."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def left_as_found() -> Iterator[None]:
    """No test may leave torch's own state, or a passage, behind: the next one would fail for its sake."""
    yield
    from weave.passage.touch import current

    assert current.get() is None
    assert torch.is_grad_enabled()
    assert not torch.is_autocast_enabled("cpu")
    assert torch._C._autograd._top_saved_tensors_default_hooks(False) is None
