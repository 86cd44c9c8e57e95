"""`weave plugins`: the table, the check, and a new package that is really installed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.plugins.packages import GOOD, Packages
from weave.cli import main

EVERYTHING = """
from weave.graph.targets import TargetWithOutput
from weave.plugins import *

class Clock(TargetWithOutput):
    name = "clock"

class ClockExecutor:
    def fire(self, firing):
        firing.deliver("", 12)

@hookimpl
def weave_target_types():
    return [TargetType(name="clock", target=Clock, executor=ClockExecutor())]

@hookimpl
def weave_reducers():
    return [ReducerDef(name="all.r", fn=max, kind=kind) for kind in ("input", "output")]

@hookimpl
def weave_adapters():
    return [AdapterDef(name="all.a", fn=abs), AdapterDef(name="all.b", fn=abs, kind="input")]

@hookimpl
def weave_transports():
    return [TransportType(scheme="pipes", connect=print)]

@hookimpl
def weave_commands():
    return [Command(name="hello", about="say it", run=print)]

@hookimpl
def weave_observer(run):
    raise AssertionError("nobody runs anything here")
"""
PROVIDES = (
    "target types clock; reducers all.r (input, output); adapters all.a, all.b (input); transports pipes; commands hello; "
    "observer"
)


def shown(packages: Packages, capsys: pytest.CaptureFixture[str], *options: str) -> list[str]:
    """The table's lines, less those of plugins that are really installed."""
    assert main(["plugins", *options]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return [line for line in out.splitlines() if line.split()[0] not in packages.real]


# --- the table ---


def test_the_table(packages: Packages, capsys: pytest.CaptureFixture[str]) -> None:
    packages.install("everything", EVERYTHING, version="10.20.30")
    packages.install("bad", "raise ValueError('a\\n  b')")
    packages.install("odd", "")
    head, *lines = shown(packages, capsys)
    assert head.split() == ["name", "distribution", "version", "status", "provides"]
    bad, why, everything, odd, remark = lines
    assert bad.split() == ["bad", "bad", "1.0", "failed"]
    assert why == "    ValueError: a b"
    assert everything.split(maxsplit=4) == ["everything", "everything", "10.20.30", "loaded", PROVIDES]
    assert odd.split() == ["odd", "odd", "1.0", "loaded"]
    assert remark.startswith("    it implements no hook of weave's")
    for word, line in (("status", everything), ("provides", everything)):
        assert line[head.index(word) - 2 : head.index(word)] == "  ", "columns stand below their heads"
    assert everything.index("target types") == head.index("provides")
    assert bad.index("failed") == head.index("status")


def test_weaves_own_are_shown_when_asked_for(packages: Packages, capsys: pytest.CaptureFixture[str]) -> None:
    packages.install("good", GOOD)
    lines = shown(packages, capsys, "--all")
    first = [line.split()[0] for line in lines]
    own = [f"weave.builtin.{name}" for name in ("targets", "reducers", "adapters", "transports")]
    assert first == ["name", *own, "good"]
    assert "mean (input, output)" in lines[2]


def test_json(packages: Packages, capsys: pytest.CaptureFixture[str]) -> None:
    packages.install("everything", EVERYTHING)
    packages.install("bad", "1 / 0")
    packages.install("aside", GOOD)
    assert main(["plugins", "--json", "--all"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["everything"] == {
        "name": "everything",
        "distribution": "everything",
        "version": "1.0",
        "status": "loaded",
        "builtin": False,
        "hooks": [
            "weave_target_types",
            "weave_reducers",
            "weave_adapters",
            "weave_transports",
            "weave_commands",
            "weave_observer",
        ],
        "provides": {
            "target types": ["clock"],
            "reducers": ["all.r (input, output)"],
            "adapters": ["all.a", "all.b (input)"],
            "transports": ["pipes"],
            "commands": ["hello"],
            "observer": [],
        },
        "error": "",
        "remarks": [],
        "conflicts": [],
    }
    assert (rows["bad"]["status"], rows["bad"]["error"]) == ("failed", "ZeroDivisionError: division by zero")
    assert rows["weave.builtin.adapters"]["builtin"]
    assert main(["plugins", "--json"]) == 0
    assert "weave.builtin.adapters" not in [row["name"] for row in json.loads(capsys.readouterr().out)]


def test_where_there_are_none(
    packages: Packages, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if packages.real:
        pytest.skip("this environment has plugins")
    assert shown(packages, capsys) == [
        "No plugins are installed. `weave plugins new NAME` begins one; `weave plugins --all` lists weave's own."
    ]
    assert main(["plugins", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_those_that_are_disabled(
    packages: Packages, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    packages.install("good", GOOD)
    packages.install("bad", "1 / 0")
    monkeypatch.setenv("WEAVE_PLUGINS", "good")
    _, bad, good = shown(packages, capsys)
    assert bad.split() == ["bad", "bad", "1.0", "disabled"]
    assert good.split()[3] == "loaded"
    assert main(["plugins", "check"]) == 0


# --- the check ---


def test_the_check_passes_where_nothing_is_wrong(packages: Packages, capsys: pytest.CaptureFixture[str]) -> None:
    packages.install("good", GOOD)
    packages.install("odd", "from weave.plugins import hookimpl\n@hookimpl\ndef weave_reducer(): return []")
    assert main(["plugins", "check"]) == 0
    out = capsys.readouterr().out
    assert "loaded    'good' (good 1.0)" in out
    assert "    weave_reducer is no hook of weave's; did you mean weave_reducers?" in out
    assert f" plugins: 2 loaded, 0 failed, {len(packages.real)} disabled" in out


def test_the_check_has_the_traceback_and_fails(packages: Packages, capsys: pytest.CaptureFixture[str]) -> None:
    packages.install("bad", "def dig():\n    return 1 / 0\ndig()")
    assert main(["plugins", "check"]) == 1
    out = capsys.readouterr().out
    for words in ("failed    'bad' (bad 1.0)", "Traceback", "bad.py", "return 1 / 0", "ZeroDivisionError"):
        assert words in out
    if not packages.real:
        assert "1 plugin: 0 loaded, 1 failed, 0 disabled" in out


def test_a_conflict_is_a_failure_too(packages: Packages, capsys: pytest.CaptureFixture[str]) -> None:
    packages.install("good", GOOD)
    packages.install("clone", GOOD.replace("good.twice", "clone").replace("good.longest", "clone.longest"))
    assert main(["plugins", "check"]) == 1
    out = capsys.readouterr().out
    assert (
        "the adapter 'clone' is claimed by 'weave.builtin.adapters' (weave-dataflow 0.1.0) and 'clone' (clone 1.0)"
        in out
    )
    assert out.count("is claimed by") == 1, "said of the plugin, not of weave"


def test_the_check_says_which_name_in_the_variable_nobody_has(
    packages: Packages, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    packages.install("good", GOOD)
    monkeypatch.setenv("WEAVE_DISABLE_PLUGINS", ",".join(["goood", *packages.real]))
    assert main(["plugins", "check"]) == 0
    assert "WEAVE_DISABLE_PLUGINS names 'goood', and no plugin is called that" in capsys.readouterr().out
    monkeypatch.delenv("WEAVE_DISABLE_PLUGINS")
    monkeypatch.setenv("WEAVE_PLUGINS", "goood")
    assert main(["plugins", "check"]) == 1
    assert "WEAVE_PLUGINS names it, and no installed package brings it; did you mean 'good'?" in capsys.readouterr().out


# --- a new one ---


def new(tmp_path: Path, name: str) -> int:
    return main(["plugins", "new", name, "--into", str(tmp_path)])


@pytest.mark.parametrize("name", ["demo-thing", "Demo.Thing", "demo_thing", "d3"])
def test_a_new_package(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert new(tmp_path, name) == 0
    package = re.sub("[-.]", "_", name).lower()
    made = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    expected = ["README.md", f"src/{package}/__init__.py", f"tests/test_{package}.py", "pyproject.toml"]
    assert made == {f"{name}/{file}" for file in expected}
    out = capsys.readouterr().out
    for file in made:
        assert file in out
    for step in (f"cd {tmp_path / name}", 'pip install -e ".[test]"', "pytest", "weave plugins"):
        assert step in out
    project = tomllib.loads((tmp_path / name / "pyproject.toml").read_text())["project"]
    assert project["optional-dependencies"]["test"]
    assert project["entry-points"]["weave.plugins"] == {name: package}
    for file in made:
        text = (tmp_path / file).read_text()
        assert "$" not in text
        if file.endswith(".py"):
            compile(text, file, "exec")


def test_where_you_are_is_where_it_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["plugins", "new", "demo-thing"]) == 0
    assert (tmp_path / "demo-thing/pyproject.toml").is_file()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "can't be a package's name"),
        ("../x", "can't be a package's name"),
        ("a b", "can't be a package's name"),
        ("3d", "can't be a package's name"),
        ("x-", "can't be a package's name"),
        ("naïve", "can't be a package's name"),
        ('x"', "can't be a package's name"),
        ("class", "a word of Python's own"),
        ("Match", "a word of Python's own"),
        ("json", "name of another module"),
        ("weave", "name of another module"),
        ("Weave_Dataflow", "name of another module"),
        ("torch", "installed already"),
        ("pytest", "installed already"),
    ],
)
def test_names_that_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, why: str) -> None:
    assert new(tmp_path, name) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("weave plugins new: ")
    assert why in err
    assert not list(tmp_path.iterdir())


def test_what_exists_is_left_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "demo-thing").mkdir()
    assert new(tmp_path, "demo-thing") == 2
    assert "exists already" in capsys.readouterr().err
    assert not list((tmp_path / "demo-thing").iterdir())
    (tmp_path / "a-file").write_text("mine")
    assert new(tmp_path, "a-file") == 2
    assert (tmp_path / "a-file").read_text() == "mine"
    assert new(tmp_path / "a-file", "demo-thing") == 2
    assert "weave plugins new: can't write" in capsys.readouterr().err


def test_the_new_package_really_installed(tmp_path: Path) -> None:
    """By pip, from nothing but what `new` wrote: its tests pass, weave finds it, and its reducer has a name."""
    assert new(tmp_path, "demo-thing") == 0
    made, site = tmp_path / "demo-thing", Packages(tmp_path / "site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    done = subprocess.run(
        [*pip, "--no-deps", "--no-build-isolation", "--target", str(site.folder), str(made)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (made / "src").rename(made / "away")  # what is tested is what is installed

    done = site.python("-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "-p", "no:asyncio", cwd=made)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.fullmatch(r"(\d+) passed in .*", done.stdout.splitlines()[-1])
    assert passed, done.stdout
    assert int(passed[1]) > 20, "the suite's, too"

    done = site.program(
        """
        import torch
        from weave import ConstantTarget, ExternalTarget, Needle
        from weave.plugins import PluginSet

        needle, caller = Needle(), ExternalTarget()
        for name, value in (("a", 1.0), ("b", -3.0), ("c", 2.0)):
            port = caller.output("y", reducer="demo_thing.strongest")
            needle.stitch(ConstantTarget(name, torch.tensor([value])).output(), port)
        print(needle.knot()({}, {})["y"].item())
        for record in PluginSet.installed().records:
            print(record.owner, record.status, *record.remarks)
        """,
        "-W",
        "error",
    )
    assert done.stderr == ""
    assert done.stdout.splitlines()[0] == "-3.0"
    assert "'demo-thing' (demo-thing 0.1.0) loaded" in done.stdout.splitlines()
