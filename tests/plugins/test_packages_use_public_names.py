"""The packages under `plugins/` use what weave documents as public, and nothing else of it: they are the proof that
somebody else's package can be written too.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
PACKAGES = sorted(path.parent for path in (ROOT / "plugins").glob("*/pyproject.toml"))
# What the reference documents. `weave.testing.pytest_plugin` is named in tests' `pytest_plugins`.
PUBLIC = ("weave", "weave.cli", "weave.core", "weave.plugins", "weave.testing", "weave.testing.pytest_plugin")


def offers(module: str) -> set[str]:
    """The public names of a module, public submodules included."""
    inside = {name.removeprefix(f"{module}.") for name in PUBLIC if name.startswith(f"{module}.")}
    return {*getattr(importlib.import_module(module), "__all__", ()), *(name for name in inside if "." not in name)}


def is_weaves(module: str) -> bool:
    return module == "weave" or module.startswith("weave.")


def offences(source: str) -> Iterator[str]:
    """What in a program uses a name of weave's that is not public, line by line."""
    tree = ast.parse(source)
    modules: dict[str, str] = {}  # local name -> the module of weave's that it is
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if is_weaves(alias.name):
                    if alias.name not in PUBLIC:
                        yield f"line {node.lineno}: import {alias.name}"
                    modules[alias.asname or "weave"] = alias.name if alias.asname else "weave"
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module and is_weaves(node.module):
            for alias in node.names:
                if node.module not in PUBLIC or alias.name not in offers(node.module):
                    yield f"line {node.lineno}: from {node.module} import {alias.name}"
                elif f"{node.module}.{alias.name}" in PUBLIC:
                    modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Constant) and _names(node.value):
            # A module named in a string: import_module, a monkeypatch, `pytest_plugins`. (The entry points' group is one.)
            yield f"line {node.lineno}: {node.value!r}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = _module(node.value, modules)
            if owner is not None and node.attr not in offers(owner):
                yield f"line {node.lineno}: {owner}.{node.attr}"


def _module(node: ast.expr, modules: dict[str, str]) -> str | None:
    """The module of weave's that an expression is."""
    if isinstance(node, ast.Name):
        return modules.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = _module(node.value, modules)
        if owner is not None and f"{owner}.{node.attr}" in PUBLIC:
            return f"{owner}.{node.attr}"
    return None


def _names(value: object) -> bool:
    """Whether a string names something of weave's that is not public."""
    return isinstance(value, str) and value.startswith("weave.") and value not in PUBLIC and _is_there(value)


def _is_there(name: str) -> bool:
    """Whether a dotted name leads to something in weave. (`weave.graph.nodes` may be an attribute of somebody's spans.)"""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for part in parts[length:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def test_there_are_packages() -> None:
    assert PACKAGES


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_only_public_names(package: Path) -> None:
    files = sorted(package.rglob("*.py"))
    assert files
    found = [f"{path.relative_to(ROOT)}, {offence}" for path in files for offence in offences(path.read_text())]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        "import weave\nweave.Needle()\nweave.RunOptions",
        "import weave.plugins as p\np.hookimpl",
        "import weave.testing\nweave.testing.Gate\nweave.Needle",
        "from weave import plugins\nplugins.PluginSet",
        "from weave.core import Needle\nfrom weave.plugins import Observer\nfrom weave.cli import main",
        "from weave_other import anything\nimport weave_other.inside\nweave_other.inside.x",
        "from .weave import mine\nfrom . import mine",
        "said = 'weave.plugins'\nmore = 'weave. A sentence.'\npytest_plugins = ['weave.testing.pytest_plugin']",
        "node.engine\nself.weave.engine",
        "attributes = {'weave.graph.nodes': 3, 'weave.nothing.of.this': 4}",
    ],
)
def test_what_is_allowed(source: str) -> None:
    assert list(offences(source)) == []


@pytest.mark.parametrize(
    "source",
    [
        "import weave.engine",
        "import weave.engine.run as r",
        "from weave.graph.args import InputArgs",
        "from weave import engine",
        "from weave.plugins import loader",
        "from weave.cli import added",
        "from weave.plugins.loader import PluginRecord",
        "from weave.core import *",
        "import weave\nweave.engine.run",
        "import weave as w\nw.graph",
        "import weave.plugins\nweave.plugins.registry",
        "from weave import plugins\nplugins.loader",
        "import_module('weave.engine.run')",
        "monkeypatch.setattr('weave.stitched.StitchedModule.run', None)",
    ],
)
def test_what_is_found(source: str) -> None:
    assert len(list(offences(source))) == 1
