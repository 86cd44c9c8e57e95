"""The package as a plugin: what its metadata says, and what loading it costs."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import weave_huggingface

from weave.plugins import PluginSet

ROOT = Path(weave_huggingface.__file__).parent
PROJECT: dict[str, Any] = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]


def test_the_entry_point_is_the_plugin() -> None:
    (where,) = PROJECT["entry-points"]["weave.plugins"].values()
    (record,) = PluginSet(importlib.import_module(where)).records
    assert record.status == "loaded"
    assert record.remarks == ()
    assert set(record.hooks) == {"weave_adapters", "weave_commands", "weave_reducers"}
    assert {p.name for provided in record.provides.values() for p in provided} == {
        "hf.hidden",
        "hf.logits",
        "hf.last_hidden_state",
        "hf-roles",
    }


def test_versions_agree() -> None:
    assert PROJECT["version"] == weave_huggingface.__version__


def test_types_and_licence_come_along() -> None:
    assert (ROOT / "py.typed").exists()
    assert "Apache License" in (Path(__file__).parent.parent / "LICENSE").read_text()


def test_loading_it_does_not_import_transformers() -> None:
    """It is loaded at every first knot in an environment that has it; transformers takes seconds."""
    program = (
        "import sys, weave_huggingface\n"
        "from weave.plugins import PluginSet\n"
        "from weave import ConstantTarget, ExternalTarget, Needle\n"
        "port = ExternalTarget().output('x')\n"
        "Needle().stitch(ConstantTarget('c', 1).output(), port).knot(plugins=PluginSet(weave_huggingface))({}, {})\n"
        "print('transformers' in sys.modules)\n"
    )
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}  # whatever pytest was told to look in
    done = subprocess.run([sys.executable, "-c", program], env=paths, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
