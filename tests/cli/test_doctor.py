"""`weave doctor`: what it sees of an environment, and that it says what to do."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import weave
from tests.plugins.packages import GOOD, ROOT, Packages
from weave import Needle
from weave.cli import doctor, main

pytestmark = pytest.mark.usefixtures("packages")


def report(capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    status = main(["doctor", "--json"])
    out, err = capsys.readouterr()
    assert err == ""
    return status, json.loads(out)


def problem(capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """The one problem there is."""
    status, said = report(capsys)
    assert status == 1
    ((what, do),) = [(p["what"], p["do"]) for p in said["problems"]]
    return what, do


def test_where_all_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    status, said = report(capsys)
    assert (status, said["problems"]) == (0, [])
    assert said["weave"] == {"version": weave.__version__, "folder": str(ROOT / "weave")}
    assert said["packages"]["torch"] == torch.__version__
    assert set(doctor.NEEDED) <= {name for name, version in said["packages"].items() if version}
    assert said["devices"]["cpu"]["torch_threads"] == torch.get_num_threads()
    assert said["devices"]["cuda"] == torch.cuda.device_count()
    assert "cpu" in said["torch"]["autocast"]
    assert said["torch"]["distributed"]["gloo"] == torch.distributed.is_gloo_available()
    assert said["runs"] == "ok"
    assert said["other_weave"] == []


def test_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    heads = [line.split()[0] for line in lines if line[0] != " "]
    assert heads == ["weave", "python", "needs", "extras", "devices", "torch", "a", "plugins", "all"]
    assert f"torch {torch.__version__}" in lines[2]
    assert lines[-1] == "all is well"


def test_nothing_is_initialised(capsys: pytest.CaptureFixture[str]) -> None:
    report(capsys)
    assert not torch.distributed.is_initialized()
    assert not torch.cuda.is_initialized()


def test_what_it_takes_for_needed_is_what_the_package_says() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needs = dict(text.split(">=") for text in project["project"]["dependencies"])
    assert needs == doctor.NEEDED
    others = [*project["project"]["optional-dependencies"]["demo"], *project["dependency-groups"]["test"]]
    assert set(doctor.WELCOME) <= {re.split("[<>=~ ]", text)[0] for text in others}


# --- packages ---


@pytest.mark.parametrize(
    ("has", "well"),
    [
        (None, False),
        ("2.8.1", False),
        ("2.8.99+cu130", False),
        ("1.99", False),
        ("2.9", True),
        ("2.9.0+cpu", True),
        ("2.13.0", True),
        ("2.13.0.dev20260301", True),
        ("3.0", True),
    ],
)
def test_versions(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, has: str | None, well: bool
) -> None:
    true = doctor.version_of
    monkeypatch.setattr(doctor, "version_of", lambda name: has if name == "torch" else true(name))
    if well:
        assert report(capsys)[0] == 0
        return
    what, do = problem(capsys)
    assert what == f"torch {has or 'is missing'}: weave needs 2.9 or newer"
    assert do == 'pip install "torch>=2.9"'


def test_a_package_that_nobody_needs_may_be_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    true = doctor.version_of
    monkeypatch.setattr(doctor, "version_of", lambda name: None if name in doctor.WELCOME else true(name))
    assert main(["doctor"]) == 0
    assert "extras   none" in capsys.readouterr().out


def test_a_torch_that_can_not_be_used(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> Any:
        raise OSError("libtorch_cpu.so: cannot open shared object file")

    monkeypatch.setattr(doctor, "_torch", fails)
    what, do = problem(capsys)
    assert what == "torch can't be used: OSError: libtorch_cpu.so: cannot open shared object file"
    assert "install torch anew" in do
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "not tried" in out
    assert f"problem 1: {what}\n  what to do: {do}\n" in out


@pytest.mark.parametrize(
    ("knot", "said"),
    [
        (lambda needle, **options: 1 / 0, "ZeroDivisionError"),
        (lambda needle, **options: lambda inputs, outputs: {"y": 5}, "AttributeError"),
    ],
)
def test_a_graph_that_does_not_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, knot: Callable[..., Any], said: str
) -> None:
    monkeypatch.setattr(Needle, "knot", knot)
    what, do = problem(capsys)
    assert what.startswith(f"a small graph does not run: {said}")
    assert "report" in do


# --- PyPI's other weave ---


def test_the_distribution(packages: Packages, capsys: pytest.CaptureFixture[str]) -> None:
    packages.install("weave-otel", None, points="")
    assert report(capsys)[0] == 0, "a name that only begins with it"
    packages.install("weave", None, version="0.52.9", points="")
    what, do = problem(capsys)
    assert what == "PyPI's other `weave` is in this environment: the distribution weave 0.52.9 is installed"
    for words in ("same import folder", "environment of its own", "pip uninstall weave weave-dataflow"):
        assert words in do
    assert main(["doctor"]) == 1
    assert "what to do: the two install the same import folder" in capsys.readouterr().out


def test_its_module_in_the_place_of_ours(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weave, "init", print, raising=False)
    monkeypatch.setattr(weave, "op", print, raising=False)
    what, _ = problem(capsys)
    assert "weave/__init__.py is not weave-dataflow's: it has init, op" in what


def test_its_files_among_ours(packages: Packages) -> None:
    """Left behind, or installed on top: what is in the folder and not in the list of what weave-dataflow brought."""
    folder = packages.folder / "weave"
    (folder / "graph").mkdir(parents=True)
    for file in ("__init__.py", "core.py", "graph/__init__.py"):
        (folder / file).write_text("")
    (folder / "__pycache__").mkdir()
    (folder / "notes.txt").write_text("")
    packages.install("weave-dataflow", None, points="")
    facts = packages.folder / "weave_dataflow-1.0.dist-info"
    (facts / "RECORD").write_text("weave/__init__.py,,\nweave/core.py,,\nweave/graph/__init__.py,,\n")
    assert list(doctor.other_weave(folder, ())) == []
    (folder / "version.py").write_text("")
    (folder / "trace").mkdir()
    (folder / "trace/__init__.py").write_text("")
    (said,) = doctor.other_weave(folder, ())
    assert said == f"{folder} has trace, version.py, which weave-dataflow did not bring"
    # Imported from a checkout while a wheel is installed elsewhere: that is another folder.
    assert list(doctor.other_weave(Path(weave.__file__).parent, ())) == []


# --- plugins ---


def test_plugins_that_work(packages: Packages, capsys: pytest.CaptureFixture[str]) -> None:
    packages.install("good", GOOD)
    packages.install("odd", "")
    status, said = report(capsys)
    assert status == 0, "a remark is no fault"
    assert said["plugins"]["loaded"] == ["'good' (good 1.0)", "'odd' (odd 1.0)"]
    assert said["plugins"]["remarks"][0].startswith("'odd' (odd 1.0): it implements no hook")
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "plugins  2 loaded" in out
    assert "it implements no hook" in out


def test_plugins_that_fail(packages: Packages, capsys: pytest.CaptureFixture[str]) -> None:
    packages.install("bad", "1 / 0")
    what, do = problem(capsys)
    assert what == "the plugin 'bad' (bad 1.0) could not be loaded: ZeroDivisionError: division by zero"
    assert "`weave plugins check`" in do
    assert "WEAVE_DISABLE_PLUGINS=bad" in do


def test_plugins_that_are_disabled_and_what_says_so(
    packages: Packages, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    packages.install("bad", "1 / 0")
    monkeypatch.setenv("WEAVE_DISABLE_PLUGINS", "*")
    monkeypatch.setenv("WEAVE_LINK_SECRET", "hush")
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "WEAVE_DISABLE_PLUGINS=*" in out
    assert "hush" not in out, "other variables are nobody's business: some hold secrets"
    assert report(capsys)[1]["plugins"]["disabled"][-1] == "'bad' (bad 1.0)" or packages.real


def test_a_conflict(packages: Packages, capsys: pytest.CaptureFixture[str]) -> None:
    packages.install("one", GOOD)
    packages.install("two", GOOD.replace("good.twice", "two.twice"))
    what, do = problem(capsys)
    assert "'good.longest' is claimed by 'one' (one 1.0) and 'two' (two 1.0)" in what
    assert "WEAVE_DISABLE_PLUGINS" in do
