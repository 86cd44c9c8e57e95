"""The package: its entry point, its README, copies of graphs that name it."""

from __future__ import annotations

import copy
import os
import pickle
import re
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import weave
from weave.plugins import PluginSet

import weave_otel
from traces import Traces, flow, plus_one
from weave_otel import Telemetry, names

HERE = Path(__file__).parent.parent
PROJECT = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
README = (HERE / "README.md").read_text()


def test_the_entry_point_is_a_plugin_that_observes_and_nothing_else() -> None:
    ((name, value),) = PROJECT["entry-points"]["weave.plugins"].items()
    (record,) = PluginSet(EntryPoint(name, value, "weave.plugins").load()).records
    assert record.status == "loaded"
    assert record.hooks == ("weave_observer",)
    assert record.remarks == ()


def test_one_version() -> None:
    assert weave_otel.__version__ == PROJECT["version"]


def test_the_readmes_example(tmp_path: Path) -> None:
    """Run as its reader would: installed, found by its entry point, nothing said of plugins."""
    example, output = re.findall(r"```(?:python)?\n(.*?)```", README, re.DOTALL)[1:3]
    second = re.findall(r"```python\n(.*?)```", README, re.DOTALL)[1]
    info = tmp_path / f"weave_otel-{PROJECT['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: weave-otel\nVersion: {PROJECT['version']}\n")
    (info / "entry_points.txt").write_text("[weave.plugins]\notel = weave_otel\n")
    script = tmp_path / "example.py"
    script.write_text(
        f"{example}\n{second}\nassert len(spans.get_finished_spans()) == 7\nstitched({{'x': 'ab'}}, {{}})\n"
        "assert spans.get_finished_spans()[-1].name == 'weave.run'\nassert len(spans.get_finished_spans()) == 8\n"
    )
    found = [str(tmp_path), *(str(Path(m.__file__).parent.parent) for m in (weave, weave_otel) if m.__file__)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(found), "WEAVE_PLUGINS": "otel", "WEAVE_PLUGINS_STRICT": "1"}
    ran = subprocess.run([sys.executable, script], env=env, capture_output=True, text=True, timeout=120, check=False)
    assert ran.stderr == ""
    assert ran.stdout == output


def test_a_graph_that_was_given_one_can_be_copied_and_pickled(traces: Traces) -> None:
    """Providers can be neither. A copy tells the same ones, what was pickled those of its new process."""
    stitched = flow(plus_one, plugins=PluginSet(Telemetry(tracer_provider=traces.provider, nodes=False)))
    copy.deepcopy(stitched)({"x": 1}, {})
    assert traces.names == ["weave.run"]
    assert pickle.loads(pickle.dumps(stitched))({"x": 1}, {})["y"] == 2
    assert traces.names == ["weave.run"]


def test_every_name_is_in_the_readme() -> None:
    said = [value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)]
    assert len(said) == 15
    assert [name for name in said if f"`{name}" not in README] == []
