"""`weave plugins new NAME`: a package with a plugin in it, that works as it is.

The files are texts in here rather than files beside it, which a wheel would have to be told of and linters to be kept
from. `$name` is the distribution, `$package` the module.
"""

from __future__ import annotations

import importlib.util
import keyword
import re
import shlex
import sys
from pathlib import Path
from string import Template
from typing import NamedTuple

PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "$name"
version = "0.1.0"
description = "A plugin for weave."
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["weave-dataflow>=0.1"]

# For the tests: pip install -e ".[test]"
[project.optional-dependencies]
test = ["pytest>=8", "trio>=0.27"]

# How weave finds it: a name of your choice, and the module (or module:object) with the hooks.
[project.entry-points."weave.plugins"]
"$name" = "$package"

[tool.hatch.build.targets.wheel]
packages = ["src/$package"]

[tool.pytest.ini_options]
testpaths = ["tests"]
pythonpath = ["src"]
"""

MODULE = '''\
"""A plugin for weave: the reducer "$package.strongest".

weave loads this module at the first knot of every program in whose environment it is installed, so keep its import light:
what is slow to import is better imported where it is used.
"""

from weave.plugins import ReducerDef, hookimpl


def strongest(acc, value, original, index, values):
    """Of the tensors that are stitched to one port, keep the one with the largest norm.

    Called once for each stitch, in the order in which they were stitched. `acc` is what it returned the last time,
    `value` what this stitch brings, `index` counts from 0, `values` is all of them. `original` is what the port would
    have had without stitches, where the record says `requires_original_output=True`.
    """
    return value if index == 0 or value.norm() > acc.norm() else acc


@hookimpl
def weave_reducers():
    """Names are shared by all plugins, so begin yours with the package's."""
    return [ReducerDef(name="$package.strongest", fn=strongest, kind="output")]


# The other hooks, for when you want them. Each has an example in weave.plugins.WeaveSpec.
#
# from weave.plugins import AdapterDef, Command, Observer, TargetType
#
# @hookimpl
# def weave_adapters():  # target.output("x", adapter="$package.halve")
#     return [AdapterDef(name="$package.halve", fn=lambda value: value / 2, kind="output")]
#
# @hookimpl
# def weave_target_types():  # a kind of node of your own: a class of targets, and what computes them
#     return [TargetType(name="...", target=YourTarget, executor=YourExecutor())]
#
# @hookimpl
# def weave_commands():  # a word after `weave`
#     return [Command(name="...", about="...", add_arguments=add_arguments, run=run)]
#
# @hookimpl
# def weave_observer(run):  # hears of a run's events; asked at every run, `None` for no
#     return YourObserver()
'''

TEST = '''\
"""The reducer, by hand, by its name in a graph, and as the package brings it."""

from importlib import metadata

import pytest
import torch

import $package
from weave import ConstantTarget, ExternalTarget, Needle
from weave.plugins import PluginSet
from weave.testing import ReducerSuite

WEAK, STRONG = torch.tensor([1.0, 1.0]), torch.tensor([0.0, -3.0])


class TestStrongest(ReducerSuite):
    """weave's own checks of a reducer: called by hand and in graphs, on every driver, with gradients, pickled."""

    plugin = $package
    name = "$package.strongest"
    kind = "output"
    examples = [([WEAK, STRONG], STRONG), ([STRONG, WEAK], STRONG)]


def test_by_its_name_in_a_graph():
    needle, caller = Needle(), ExternalTarget()
    for name, value in (("weak", WEAK), ("strong", STRONG)):
        needle.stitch(ConstantTarget(name, value).output(), caller.output("y", reducer="$package.strongest"))
    stitched = needle.knot(plugins=PluginSet($package))
    assert torch.equal(stitched({}, {})["y"], STRONG)


def test_weave_finds_the_installed_package():
    if not metadata.entry_points(group="weave.plugins", name="$name"):
        pytest.skip("not installed: pip install -e .")
    [record] = [record for record in PluginSet.installed().records if record.name == "$name"]
    assert record.status == "loaded", record.trace
    assert not record.remarks
'''

README = """\
# $name

A plugin for weave (`weave-dataflow`). It adds the reducer `$package.strongest`: of several tensors
that are stitched to one output port, the one with the largest norm.

```python
needle.stitch(a.output("layers.3"), b.output("layers.3", reducer="$package.strongest"))
needle.stitch(c.output("layers.3"), b.output("layers.3", reducer="$package.strongest"))
```

Installing the package is enough: `pip install $name`. `weave plugins` lists it, `weave plugins check` says what is wrong
where something is, `WEAVE_DISABLE_PLUGINS=$name` leaves it out.

## Development

```
pip install -e ".[test]"
pytest
```

The plugin is `src/$package/__init__.py`; `tests/` checks it with weave's own suite for reducers.
"""

FILES = {
    "pyproject.toml": PYPROJECT,
    "README.md": README,
    "src/$package/__init__.py": MODULE,
    "tests/test_$package.py": TEST,
}


class Refused(Exception):
    """No package of that name, or not there. The text is for the user."""


class Written(NamedTuple):
    """What was written, and what to do now."""

    files: tuple[Path, ...]
    next: str


def write(name: str, into: Path) -> Written:
    """Write the package into a new directory of its name.

    Raises:
        Refused: the name can't be a package's, or the directory exists.
        OSError: it can't be written.
    """
    package = _package(name)
    folder = into / name
    if folder.exists() or folder.is_symlink():
        raise Refused(f"{folder} exists already; choose another name, or another directory with --into")
    files = []
    for path, text in FILES.items():
        file = folder / Template(path).substitute(package=package)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(Template(text).substitute(name=name, package=package), encoding="utf-8")
        files.append(file)
    # An extra rather than a dependency group: the pip of a fresh environment may be older than `--group` (25.1).
    steps = [f"cd {shlex.quote(str(folder))}", 'pip install -e ".[test]"', "pytest", "weave plugins"]
    lines = "".join(f"  {step}\n" for step in steps)
    return Written(tuple(files), f"Next:\n{lines}The plugin is {files[2]}; change it there.")


def _package(name: str) -> str:
    """The import name of a distribution."""
    if not re.fullmatch(r"[A-Za-z](?:[A-Za-z0-9._-]*[A-Za-z0-9])?", name):
        raise Refused(f"{name!r} can't be a package's name: letters, digits, '-', '_' and '.', beginning with a letter")
    package = re.sub(r"[-_.]+", "_", name).lower()
    if keyword.iskeyword(package) or keyword.issoftkeyword(package):
        raise Refused(f"{package!r} is a word of Python's own; choose another name")
    if package in sys.stdlib_module_names or package in ("weave", "weave_dataflow"):
        raise Refused(
            f"{package!r} is the name of another module; choose one of your own, such as {name + '-plugin'!r}"
        )
    if _imports(package):
        raise Refused(f"a module {package!r} is installed already, and would be hidden; choose another name")
    return package


def _imports(package: str) -> bool:
    try:
        found = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return False
    return found is not None and found.origin is not None  # a mere directory of that name is no module
