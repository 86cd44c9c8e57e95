from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, settings

from tests.behaviour import session

# Many small tensors: more threads would only take turns.
torch.set_num_threads(1)

# A machine that is busy with something else is no failure: neither time limits nor complaints about slow generation.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Both backends, always: what is marked anyio runs on each."""
    return str(request.param)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    session.arrange(items)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    session.note(report)
