from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plugins.packages import packages

__all__ = ["models", "packages"]

MODELS = '''
import torch
from torch import nn

class Net(nn.Module):
    """A list that is never called, one module under two names, a class with a call of its own."""

    def __init__(self, width=3):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width)])
        self.same = self.layers[0]
        self.odd = Odd(width, width)

    def forward(self, x):
        return self.odd(self.same(x))

class Odd(nn.Linear):
    def __call__(self, x):
        return super().__call__(x) * 2

def make():
    return Net(2)

def needs(width):
    return Net(width)

def fails():
    raise RuntimeError("no weights here")

instance = Net()
number = 3

class Space:
    inner = nn.Sequential(nn.ReLU())
'''


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with a module of models in it, where the user stands."""
    (tmp_path / "some_models.py").write_text(MODELS)
    (tmp_path / "broken_models.py").write_text("raise ValueError('half written')\n")
    (tmp_path / "misspelt_models.py").write_text("def f(:\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in ("some_models", "broken_models", "misspelt_models"):
        sys.modules.pop(name, None)
