"""Fixtures of the tests of log lines."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog

from tests.observe.logging_apps import Log
from weave.observe import flush
from weave.observe.logs import logs


@pytest.fixture
def unconfigured() -> Iterator[None]:
    """Every test finds structlog and the logger `weave` as they come, and leaves them so."""
    standard = logging.getLogger("weave")
    before = standard.level
    structlog.reset_defaults()
    logs._reported = False
    yield
    flush()
    structlog.reset_defaults()
    standard.setLevel(before)
    logs._reported = False


@pytest.fixture
def log(unconfigured: None) -> Log:
    made = Log()
    made.configure()
    return made
