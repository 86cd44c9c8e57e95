from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from weave.demo.encoder import SentenceEncoder, load_teacher

from .small import tiny_encoder


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    found = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(found)


@pytest.fixture
def tiny() -> SentenceEncoder:
    return tiny_encoder()


@pytest.fixture(scope="session")
def teacher() -> SentenceEncoder:
    """The real teacher. Frozen, and no test may change it."""
    return load_teacher()
