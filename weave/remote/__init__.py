"""Other ranks: joining a world of them, and the settings of its links.

LinkOptions      the link's settings; `WEAVE_LINK_*` in the environment
join, leave      a world without torch.distributed
run_local        ranks as threads of one process, for tries and tests
register_codec, register_class   what may travel besides tensors and plain values
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOME = {
    "LinkOptions": "weave.remote.options",
    "join": "weave.remote.world",
    "leave": "weave.remote.world",
    "register_class": "weave.remote.codec",
    "register_codec": "weave.remote.codec",
    "run_local": "weave.remote.local",
}

__all__ = [*_HOME]

if TYPE_CHECKING:
    from weave.remote.codec import register_class as register_class
    from weave.remote.codec import register_codec as register_codec
    from weave.remote.local import run_local as run_local
    from weave.remote.options import LinkOptions as LinkOptions
    from weave.remote.world import join as join
    from weave.remote.world import leave as leave


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'weave.remote' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
