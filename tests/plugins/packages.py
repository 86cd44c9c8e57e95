"""Installed packages, imitated: what pip leaves on the path, a module and a folder of metadata, is all that is looked at."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

import pytest

import weave
from weave.plugins import PluginRecord, PluginSet
from weave.plugins.finding import ALLOW, DENY, GROUP, STRICT
from weave.plugins.loader import installed

ROOT = Path(weave.__file__).parents[1]

# A plugin that works, with a reducer and an adapter.
GOOD = """
from weave.plugins import AdapterDef, ReducerDef, hookimpl

def longest(acc, value, original, index, values):
    return value if index == 0 or len(value) > len(acc) else acc

@hookimpl
def weave_reducers():
    return [ReducerDef(name="good.longest", fn=longest, kind="output")]

@hookimpl
def weave_adapters():
    return [AdapterDef(name="good.twice", fn=lambda value: value * 2, kind="output")]
"""


def really_installed() -> list[str]:
    """Plugins that this environment has, and that tests of imitated ones leave out."""
    return sorted({point.name for point in metadata.entry_points(group=GROUP)})


class Packages:
    """A directory that packages can be installed into."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.real = really_installed()
        self.modules: list[str] = []

    def install(
        self,
        name: str,
        source: str | None = "",
        *,
        module: str = "",
        version: str = "1.0",
        points: str | None = None,
        described: bool = True,
    ) -> str:
        """A distribution of that name with one module; entry point `name = module` unless `points` has others.

        `source=None`: there is no such module. `described=False`: without metadata but for the entry points.
        """
        module = module or name.replace("-", "_")
        if source is not None:
            (self.folder / f"{module}.py").write_text(textwrap.dedent(source))
        facts = self.folder / f"{name.replace('-', '_')}-{version}.dist-info"
        facts.mkdir()
        if described:
            (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        text = f"[{GROUP}]\n{name} = {module}\n" if points is None else points
        (facts / "entry_points.txt").write_text(textwrap.dedent(text))
        self.modules.append(module)
        importlib.invalidate_caches()
        return module

    def records(self) -> dict[str, PluginRecord]:
        """What weave makes of them, by name."""
        return {record.name: record for record in self.all() if record.name not in self.real}

    def all(self) -> list[PluginRecord]:
        return installed()

    def one(self, source: str, **more: str) -> PluginRecord:
        """The record of one plugin with that source."""
        self.install("one", source, **more)
        return self.records()["one"]

    def environment(self, **more: str) -> dict[str, str]:
        """For a process that has them installed."""
        kept = {key: value for key, value in os.environ.items() if key not in (ALLOW, DENY, STRICT, "PYTHONWARNINGS")}
        denied = ",".join(filter(None, [more.pop(DENY, ""), *self.real]))
        return {
            **kept,
            "PYTHONPATH": os.pathsep.join([str(self.folder), str(ROOT)]),
            "COLUMNS": "200",
            **({DENY: denied} if denied else {}),
            **more,
        }

    def python(
        self, *arguments: str, cwd: Path | None = None, limit: float = 300, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Python, where they are installed."""
        return subprocess.run(
            [sys.executable, *arguments],
            capture_output=True,
            text=True,
            check=False,
            env=self.environment(**environment),
            cwd=cwd or self.folder,
            timeout=limit,
        )

    def program(self, source: str, *flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.python(*flags, "-c", textwrap.dedent(source), **environment)

    def weave(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """The command, where they are installed."""
        return self.python("-m", "weave", *arguments, **environment)


@contextmanager
def seen_here(packages: Packages, monkeypatch: pytest.MonkeyPatch) -> Iterator[Packages]:
    """In this process, too, as long as the test lasts."""
    for variable in (ALLOW, STRICT):
        monkeypatch.delenv(variable, raising=False)
    deny(monkeypatch, packages)
    monkeypatch.syspath_prepend(str(packages.folder))
    PluginSet.forget()
    try:
        yield packages
    finally:
        for module in packages.modules:
            sys.modules.pop(module, None)
        PluginSet.forget()


def deny(monkeypatch: pytest.MonkeyPatch, packages: Packages, names: Sequence[str] = ()) -> None:
    """`WEAVE_DISABLE_PLUGINS`: those that are really there, and these."""
    denied = [*packages.real, *names]
    if denied:
        monkeypatch.setenv(DENY, ",".join(denied))
    else:
        monkeypatch.delenv(DENY, raising=False)


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Packages]:
    """A directory that packages can be installed into, and that this process looks at."""
    folder = tmp_path / "site"
    folder.mkdir()
    with seen_here(Packages(folder), monkeypatch) as made:
        yield made
