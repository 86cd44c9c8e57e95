"""`weave run-ranks`: what ranks are given, whose line is whose, how it ends. The programs need no torch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from weave.cli import main

PATIENCE = 60.0


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a test writes its program, which is where the user stands."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "program.py"


def test_lines_have_their_rank_in_front(program: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program.write_text(
        "import os, sys\n"
        "print('I am', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'], *sys.argv[1:])\n"
        "print('to stderr', file=sys.stderr)\n"
        "print('no end of line', end='')\n"
    )
    assert main(["run-ranks", "3", str(program), "-x", "--flag", "word"]) == 0
    got = capfd.readouterr()
    assert sorted(got.out.splitlines()) == sorted(
        f"[{rank}] {line}" for rank in range(3) for line in (f"I am {rank} of 3 -x --flag word", "no end of line")
    )
    assert sorted(got.err.splitlines()) == ["[0] to stderr", "[1] to stderr", "[2] to stderr"]


def test_ranks_are_given_what_torchrun_gives(program: Path, capfd: pytest.CaptureFixture[str]) -> None:
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    program.write_text(f"import os\nprint(*(os.environ[name] for name in {names}))\n")
    assert main(["run-ranks", "2", str(program)]) == 0
    first, second = sorted(capfd.readouterr().out.splitlines())
    port = first.split()[-1]
    assert 0 < int(port) < 1 << 16
    assert first == f"[0] 0 0 2 2 127.0.0.1 {port}"
    assert second == f"[1] 1 1 2 2 127.0.0.1 {port}"


def test_the_first_failure_ends_all_and_is_the_status(program: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program.write_text(
        "import os, time, sys\n"
        "if os.environ['RANK'] == '1':\n"
        "    print('fails'); sys.exit(7)\n"
        f"time.sleep({10 * PATIENCE})\n"
    )
    began = time.monotonic()
    assert main(["run-ranks", "3", str(program)]) == 7
    assert time.monotonic() - began < 5 * PATIENCE, "the others were not ended"
    got = capfd.readouterr()
    assert got.out == "[1] fails\n"
    assert got.err == "weave run-ranks: rank 1 ended with status 7; the others were ended\n"


def test_a_rank_that_ignores_being_asked_is_ended(program: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program.write_text(
        "import os, signal, sys, time\n"
        "if os.environ['RANK'] == '0':\n"
        "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "    open('ready', 'w').close()\n"
        f"    time.sleep({10 * PATIENCE})\n"
        "while not os.path.exists('ready'):\n"
        "    time.sleep(0.01)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert main(["run-ranks", "2", str(program)]) == 1
    assert "rank 1 ended with SIGKILL; the others were ended" in capfd.readouterr().err


def test_a_traceback_is_passed_on(program: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program.write_text("raise ValueError('not like this')\n")
    assert main(["run-ranks", "1", str(program)]) == 1
    err = capfd.readouterr().err.splitlines()
    assert "[0] ValueError: not like this" in err
    assert err[-1].startswith("weave run-ranks: rank 0 ended with status 1")


def test_a_module_as_for_python_m(program: Path, capfd: pytest.CaptureFixture[str]) -> None:
    package = program.parent / "some_ranks"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "go.py").write_text("import sys\nprint(__name__, *sys.argv[1:])\n")
    assert main(["run-ranks", "2", "-m", "some_ranks.go", "word"]) == 0
    assert sorted(capfd.readouterr().out.splitlines()) == ["[0] __main__ word", "[1] __main__ word"]


def test_a_file_that_is_not_there(program: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run-ranks", "2", "mistyped.py"]) == 2
    got = capfd.readouterr()
    assert (got.out, got.err) == ("", "weave run-ranks: there is no file 'mistyped.py'\n")


@pytest.mark.parametrize("count", ["0", "-1", "two", "1025"])
def test_a_number_of_ranks_that_is_none(count: str, program: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program.touch()
    with pytest.raises(SystemExit) as stopped:
        main(["run-ranks", count, str(program)])
    assert stopped.value.code == 2
    assert "run-ranks" in capfd.readouterr().err


@pytest.mark.skipif(not hasattr(os, "fork"), reason="signals of POSIX")
def test_an_interrupt_ends_the_ranks(program: Path) -> None:
    program.write_text(f"import os, time\nprint(os.getpid(), flush=True)\ntime.sleep({10 * PATIENCE})\n")
    command = [sys.executable, "-m", "weave", "run-ranks", "2", str(program)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        ranks = [int(process.stdout.readline().split()[1]) for _ in range(2)]
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
        for rank in ranks:
            with pytest.raises(ProcessLookupError):
                os.kill(rank, 0)
