"""weave's own targets, reducers and adapters, registered through the same hooks as anybody's."""

from __future__ import annotations

import functools

from weave.builtin import adapters, reducers, targets
from weave.plugins.registry import Registry

PLUGINS = (targets, reducers, adapters)


@functools.cache
def builtin_registry() -> Registry:
    """A registry of what comes with weave."""
    return Registry(PLUGINS)
