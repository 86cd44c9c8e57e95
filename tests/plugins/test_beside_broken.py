"""A good plugin beside broken ones of every kind. What is printed is seen from outside, in processes of their own."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator

import pytest

from tests.plugins.packages import GOOD, Packages, seen_here
from weave.cli import main

PICK = """
from weave.plugins import ReducerDef, hookimpl
@hookimpl
def weave_reducers():
    return [ReducerDef(name="dup.pick", fn=lambda acc, value, *more: value, kind="output")]
"""
BROKEN = {
    "imports": "import nowhere_at_all",
    "exits": "import sys\nprint\nsys.exit('no licence')",
    "hooked": (
        "from weave.plugins import hookimpl\n@hookimpl\ndef weave_reducers():\n    raise RuntimeError('no weights here')"
    ),
}
MISSPELT = "from weave.plugins import hookimpl\n@hookimpl\ndef weave_reducer():\n    return []"

WHY = {
    "imports": "ModuleNotFoundError: No module named 'nowhere_at_all'",
    "exits": "SystemExit: no licence",
    "hooked": "RuntimeError: no weights here",
}

# Graphs that use: none of the plugins; the good one; what two claim; what nobody has.
PROGRAM = """
import sys
from weave import ConstantTarget, ExternalTarget, FunctionTarget, Needle, PluginException

def run(**options):
    ext, needle = ExternalTarget(), Needle()
    for name in ("a", "bb"):
        needle.stitch(ConstantTarget(name, name).output(), ext.output("y", **options))
    return needle.knot()({}, {})["y"]

print("none", run(reducer="last"), run())
for name in ("good.longest", "dup.pick", "good.longset", "imports.thing"):
    try:
        print(name, run(reducer=name))
    except PluginException as error:
        print(name, "refused:", error)
"""


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    """Seven packages, one of which is in order and three of which at least load."""
    made = Packages(tmp_path_factory.mktemp("crowd"))
    made.install("good", GOOD)
    for name, source in BROKEN.items():
        made.install(name, source)
    made.install("misspelt", MISSPELT)
    made.install("dup-one", PICK, version="1.1")
    made.install("dup-two", PICK, version="2.2")
    return made


@pytest.fixture(scope="module")
def done(crowd: Packages) -> subprocess.CompletedProcess[str]:
    """The program, with all of them."""
    return crowd.program(PROGRAM)


@pytest.fixture
def here(crowd: Packages, monkeypatch: pytest.MonkeyPatch) -> Iterator[Packages]:
    with seen_here(crowd, monkeypatch) as seen:
        yield seen


def lines_of(text: str) -> dict[str, str]:
    return dict(line.split(" ", 1) for line in text.splitlines())


def test_runs_work_and_print_nothing_but_one_warning(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
    said = lines_of(done.stdout)
    assert said["none"] == "bb bb"
    assert said["good.longest"] == "bb"
    # One warning, in a line that begins with where weave was called.
    (warning,) = done.stderr.splitlines()
    assert re.match(r"<string>:\d+: PluginWarning: weave's plugins: ", warning)
    for name, why in WHY.items():
        assert f"{name!r} ({name} 1.0) could not be loaded ({why})" in warning
    assert "'misspelt' (misspelt 1.0): weave_reducer is no hook of weave's; did you mean weave_reducers?" in warning
    assert "good" not in warning
    assert "dup" not in warning


def test_what_two_claim_names_both_and_what_is_missing_names_the_failed(done: subprocess.CompletedProcess[str]) -> None:
    said = lines_of(done.stdout)
    assert re.search(
        r"'dup\.pick' is claimed by several plugins: 'dup-one' \(dup-one 1\.1\), 'dup-two'", said["dup.pick"]
    )
    assert "(dup-two 2.2). Leave out all but one: WEAVE_DISABLE_PLUGINS=NAME" in said["dup.pick"]
    assert "no output reducer is called 'good.longset'; did you mean 'good.longest'? Plugins" in said["good.longset"]
    for missing in ("good.longset", "imports.thing"):
        for name, why in WHY.items():
            assert f"{name!r} ({name} 1.0): {why}" in said[missing]
    assert "misspelt" not in said["imports.thing"]


def test_those_who_are_disabled_are_neither_loaded_nor_warned_of(crowd: Packages) -> None:
    done = crowd.program(PROGRAM, WEAVE_DISABLE_PLUGINS="imports,exits,hooked,misspelt,dup-two")
    assert (done.returncode, done.stderr) == (0, "")
    said = lines_of(done.stdout)
    assert (said["none"], said["good.longest"], said["dup.pick"]) == ("bb bb", "bb", "bb")


def test_those_alone_that_are_allowed(crowd: Packages) -> None:
    done = crowd.program(PROGRAM, WEAVE_PLUGINS="good,dup-one")
    assert (done.returncode, done.stderr) == (0, "")
    said = lines_of(done.stdout)
    assert (said["good.longest"], said["dup.pick"]) == ("bb", "bb")


def test_strict_raises(crowd: Packages) -> None:
    done = crowd.program(PROGRAM, WEAVE_PLUGINS_STRICT="1")
    assert done.returncode == 1
    assert done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert "PluginException: 3 installed plugins could not be loaded, and WEAVE_PLUGINS_STRICT is set: " in last
    for name, why in WHY.items():
        assert f"{name!r} ({name} 1.0): {why}" in last
    done = crowd.program(PROGRAM, WEAVE_PLUGINS_STRICT="1", WEAVE_DISABLE_PLUGINS="imports,exits,hooked,misspelt")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.usefixtures("here")
def test_the_command_shows_each_with_its_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = [*out.splitlines(), ""]
    shown = {line.split()[0]: (line, index) for index, line in enumerate(lines) if line and line[0] != " "}
    for name, why in WHY.items():
        line, index = shown[name]
        assert line.split() == [name, name, "1.0", "failed"]
        assert lines[index + 1] == f"    {why}"
    assert shown["good"][0].split(maxsplit=4)[3:] == [
        "loaded",
        "reducers good.longest (output); adapters good.twice (output)",
    ]
    assert "did you mean weave_reducers?" in lines[shown["misspelt"][1] + 1]
    for name in ("dup-one", "dup-two"):
        clash = lines[shown[name][1] + 1]
        assert (
            "the output reducer 'dup.pick' is claimed by 'dup-one' (dup-one 1.1) and 'dup-two' (dup-two 2.2)" in clash
        )
    assert main(["plugins", "--json"]) == 0
    records = {record["name"]: record for record in json.loads(capsys.readouterr().out)}
    assert {name: records[name]["error"] for name in WHY} == WHY
    assert records["good"]["error"] == ""
    assert records["dup-two"]["conflicts"]


def test_the_check_shows_where_each_fails(here: Packages, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "check"]) == 1
    out, err = capsys.readouterr()
    assert err == ""
    for name in BROKEN:
        assert f"{name}.py" in out
    assert out.count("Traceback (most recent call last)") == len(BROKEN)
    for line in out.splitlines():
        if line.strip().startswith("File "):
            assert re.search(r"/(imports|exits|hooked)\.py", line), "not the way there, through weave and importlib"
    assert "did you mean weave_reducers?" in out
    real = len(here.real)
    assert f"{7 + real} plugins: 4 loaded, 3 failed, {real} disabled" in out


@pytest.mark.usefixtures("here")
def test_the_doctor_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    for name, why in WHY.items():
        assert f"the plugin {name!r} ({name} 1.0) could not be loaded: {why}" in out
        assert f"WEAVE_DISABLE_PLUGINS={name}" in out
    assert "'dup.pick' is claimed by" in out
