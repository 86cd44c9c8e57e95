"""The command itself: help, version, what it imports."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import weave
from weave.cli import main


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out == f"weave-dataflow {weave.__version__}\n"


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    out = capsys.readouterr().out
    for word in ("usage: weave", "ports", "demo"):
        assert word in out


def test_without_a_command_it_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "usage: weave" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments", [["nope"], ["--nope"], ["ports", "--nope"], ["demo", "--sync", "--max-workers", "2"]]
)
def test_a_wrong_command_line_is_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert "usage: weave" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["ports", "demo"])
def test_each_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([command, "--help"])
    assert stopped.value.code == 0
    assert f"usage: weave {command}" in capsys.readouterr().out


def test_as_a_module() -> None:
    done = python("-W", "error", "-m", "weave", "--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"weave-dataflow {weave.__version__}\n", "")
    done = python("-m", "weave", "ports", "nowhere")
    assert (done.returncode, done.stdout) == (2, "")


def test_help_imports_neither_torch_nor_what_only_the_demo_needs() -> None:
    """The demo's packages are an extra: without them the other commands work."""
    done = python(
        "-c",
        "import sys; from weave.cli import main; main([]); "
        "print(*sorted({m.split('.')[0] for m in sys.modules}), file=sys.stderr)",
    )
    assert done.returncode == 0, done.stderr
    loaded = set(done.stderr.split())
    assert "weave" in loaded
    assert not loaded & {"torch", "numpy", "rich", "matplotlib", "tokenizers", "safetensors"}


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize("unbuffered", ["1", ""], ids=["at once", "at the end"])
def test_a_reader_that_has_seen_enough_is_no_error(unbuffered: str) -> None:
    """`weave ports ... | head -1`: the pipe is found closed where a line is printed, or when Python flushes at its end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "weave", "ports", "some_models:Net"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 0
    assert said == b""
