"""What is installed under the entry-point group `weave.plugins`, and which of it the environment wants. Loads nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from importlib import metadata
from typing import NamedTuple

GROUP = "weave.plugins"
ALLOW, DENY, STRICT = "WEAVE_PLUGINS", "WEAVE_DISABLE_PLUGINS", "WEAVE_PLUGINS_STRICT"


class Found(NamedTuple):
    """An entry point. `point` is `None` where its package's file of entry points can't be read: `error` says why."""

    name: str
    point: metadata.EntryPoint | None
    distribution: str
    version: str
    error: Exception | None = None

    def named_in(self, names: Iterable[str]) -> bool:
        """Whether it is among these names of plugins and of distributions; `*` is all."""
        return bool({"*", same(self.name), same(self.distribution)} & set(names))


def same(name: str) -> str:
    """A form in which two ways of writing a name are equal, as packaging has it: `Demo_Thing` is `demo-thing`."""
    return re.sub(r"[-_.]+", "-", name).lower()


def names_in(variable: str) -> dict[str, str]:
    """The names that an environment variable lists by comma: as they are compared, and as they were written."""
    written = (name.strip() for name in os.environ.get(variable, "").split(","))
    return {same(name): name for name in written if name}


def strict() -> bool:
    """Whether an installed plugin that doesn't work is an error, instead of a warning."""
    return os.environ.get(STRICT, "").strip().lower() not in ("", "0", "false", "no", "off")


def find() -> list[Found]:
    """Every entry point of the group, in the order of their names."""
    try:
        found = [_found(point) for point in metadata.entry_points(group=GROUP)]
    except Exception:  # it reads every package's file, and one that is malformed ends it for all
        found = list(_one_by_one())
    return sorted(found, key=lambda f: (f.name, f.point.value if f.point else "", f.distribution))


def _found(point: metadata.EntryPoint) -> Found:
    return Found(point.name, point, *_package(point.dist))


def _package(dist: metadata.Distribution | None) -> tuple[str, str]:
    """Name and version; empty for what a half-done uninstall leaves behind, which has neither."""
    if dist is None:
        return "", ""
    try:
        return dist.name or "", dist.version or ""
    except Exception:
        return "", ""


def _one_by_one() -> Iterator[Found]:
    seen = set()
    for dist in metadata.distributions():
        name, version = _package(dist)
        if name and same(name) in seen:
            continue  # the first on the path is the one that is imported
        seen.add(same(name))
        try:
            points = [point for point in dist.entry_points if point.group == GROUP]
        except Exception as error:
            if GROUP in (dist.read_text("entry_points.txt") or ""):  # else it is none of our business
                yield Found(name, None, name, version, error)
            continue
        for point in points:
            yield Found(point.name, point, name, version)
