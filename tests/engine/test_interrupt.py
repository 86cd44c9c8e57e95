"""Ctrl-C during a call: KeyboardInterrupt comes out, nothing goes on behind it, and the next call is as any other."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.engine import interrupted


@pytest.fixture(scope="module")
def played() -> dict[str, Any]:
    """What the program said of each scene, and on its error output."""
    program = [sys.executable, "-W", "error", "-m", "tests.engine.interrupted"]
    root = Path(__file__).parents[2]
    try:
        done = subprocess.run(program, capture_output=True, text=True, timeout=120, cwd=root)
    except subprocess.TimeoutExpired as late:
        said, complaints = (late.stdout or b"").decode(), (late.stderr or b"").decode() + "\nit hung"
    else:
        said, complaints = done.stdout, done.stderr
    found: dict[str, Any] = {"complaints": complaints}
    for line in said.splitlines():
        found.update(json.loads(line))
    return found


@pytest.mark.parametrize("scene", [scene.__name__ for scene in interrupted.SCENES])
def test_interrupted(scene: str, played: dict[str, Any]) -> None:
    assert scene in played, played["complaints"]
    assert played[scene] == {
        "raised": "KeyboardInterrupt",
        "said": "",
        "alive": 0,
        "computing": 0,
        "pristine": True,
        "portal_tasks": 0,
        "again": [1.0, 1.0],
    }


def test_nothing_is_said_on_the_way(played: dict[str, Any]) -> None:
    assert played["complaints"] == ""
