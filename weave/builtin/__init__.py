"""weave's own targets, reducers and adapters, registered through the same hooks as anybody's."""

from __future__ import annotations

import functools

import weave
from weave.builtin import adapters, reducers, targets, transports
from weave.plugins.loader import PluginRecord, examine
from weave.plugins.plugin_set import PluginSet
from weave.plugins.registry import Registry

PLUGINS = (targets, reducers, adapters, transports)


@functools.cache
def builtin_records() -> tuple[PluginRecord, ...]:
    """A record for each of weave's own plugins."""
    return tuple(
        examine(plugin, plugin.__name__, builtin=True, distribution="weave-dataflow", version=weave.__version__)
        for plugin in PLUGINS
    )


@functools.lru_cache(maxsize=64)  # knots are tied by the thousand, mostly with one set
def registry_of(plugins: PluginSet) -> Registry:
    """A registry of what comes with weave, and of a set of plugins."""
    return Registry([*builtin_records(), *plugins.records])
