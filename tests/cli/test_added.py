"""Subcommands that plugins add: when they are loaded, what they are given, and which are refused."""

from __future__ import annotations

import contextlib
import re
import sys

import pytest

from tests.plugins.packages import Packages
from weave.cli import OWN, main

HELLO = """
from weave.plugins import Command, hookimpl

def add_arguments(parser):
    parser.add_argument("who")
    parser.add_argument("--run", default="walks")  # a name that weave itself has a use for
    parser.add_argument("--status", type=int)

def run(args):
    print(args.who, args.run)
    return args.status

@hookimpl
def weave_commands():
    return [Command(name="hello", about="say hello, 100% of it", add_arguments=add_arguments, run=run)]
"""
BYE = """
from weave.plugins import Command, hookimpl
@hookimpl
def weave_commands():
    return [Command(name=name, about=f"say {name}", run=lambda args: print(name)) for name in (NAMES)]
"""


def bye(*names: str) -> str:
    return BYE.replace("NAMES", "".join(f"{name!r}, " for name in names))


def refused(*words: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 2


def test_a_plugins_command_runs(packages: Packages, capsys: pytest.CaptureFixture[str]) -> None:
    packages.install("hi", HELLO)
    assert main(["hello", "you"]) == 0, "None is no failure"
    assert main(["hello", "you", "--run", "runs", "--status", "7"]) == 7
    assert capsys.readouterr() == ("you walks\nyou runs\n", "")
    refused("hello", "you", "--nope")
    assert "unrecognized arguments: --nope" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["hello", "--help"])
    assert "say hello, 100% of it" in capsys.readouterr().out


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_the_help_lists_it_with_its_owner(
    packages: Packages, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    packages.install("hi", HELLO, version="0.4")
    with contextlib.suppress(SystemExit):
        main(words)
    out = capsys.readouterr().out
    assert re.search(r"hello +say hello, 100% of it +\['hi' \(hi 0\.4\)\]", out)
    for word in OWN:
        assert re.search(rf"^    {word}\s", out, re.MULTILINE)
    assert "not usable" not in out


@pytest.mark.parametrize("words", [["ports", "--help"], ["ports", "nowhere"], ["--version"], ["plugins", "--help"]])
def test_for_words_of_weaves_own_no_plugin_is_loaded(
    packages: Packages, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    packages.install("hi", HELLO)
    with contextlib.suppress(SystemExit):
        main(words)
    assert "hi" not in sys.modules


def test_a_word_of_weaves_own_stays_weaves_own(packages: Packages, capsys: pytest.CaptureFixture[str]) -> None:
    packages.install("grabs", bye("ports", "bye"))
    assert main(["ports", "nowhere"]) == 2
    assert "weave ports:" in capsys.readouterr().err
    assert main(["bye"]) == 0, "its other words work"
    assert main([]) == 0
    said = "the command 'ports' is weave-dataflow's own, and claimed by 'grabs' (grabs 1.0) too"
    assert said in capsys.readouterr().out
    assert main(["plugins"]) == 0
    assert said in capsys.readouterr().out
    assert main(["plugins", "check"]) == 1
    assert said in capsys.readouterr().out


def test_a_word_that_two_plugins_claim(packages: Packages, capsys: pytest.CaptureFixture[str]) -> None:
    packages.install("one", bye("bye", "ciao"))
    packages.install("two", bye("bye"))
    refused("bye")
    said = "the command 'bye' is claimed by 'one' (one 1.0) and 'two' (two 1.0): leave out all but one"
    assert said in capsys.readouterr().err
    assert main([]) == 0
    out = capsys.readouterr().out
    assert said in out
    assert re.search("^    ciao ", out, re.MULTILINE)
    assert not re.search("^    bye ", out, re.MULTILINE)
    assert main(["plugins"]) == 0
    assert capsys.readouterr().out.count(said) == 2, "said of each of them"


def test_a_word_that_nobody_knows(packages: Packages, capsys: pytest.CaptureFixture[str]) -> None:
    packages.install("hi", HELLO)
    refused("helo")
    assert "no command is called 'helo'; did you mean hello?" in capsys.readouterr().err
    refused("port")
    assert "did you mean ports?" in capsys.readouterr().err
    refused("zzz")
    assert f"there are {', '.join([*OWN, 'hello'])}" in capsys.readouterr().err


def test_beside_one_that_is_broken(packages: Packages, capsys: pytest.CaptureFixture[str]) -> None:
    packages.install("hi", HELLO)
    packages.install("bad", "1 / 0")
    assert main(["hello", "you"]) == 0
    out, err = capsys.readouterr()
    assert out == "you walks\n"
    (line,) = err.splitlines()
    assert line.startswith(
        "weave: the plugin 'bad' (bad 1.0) could not be loaded (ZeroDivisionError: division by zero)"
    )
    refused("helloo-from-bad")
    assert "may bring it: 'bad' (bad 1.0): ZeroDivisionError" in capsys.readouterr().err
    assert main([]) == 0
    assert "the plugin 'bad' (bad 1.0) could not be loaded: ZeroDivisionError" in capsys.readouterr().out


def test_strict(packages: Packages, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    packages.install("hi", HELLO)
    packages.install("bad", "1 / 0")
    monkeypatch.setenv("WEAVE_PLUGINS_STRICT", "1")
    with pytest.raises(SystemExit) as stopped:
        main(["hello", "you"])
    assert stopped.value.code == 1
    assert "weave: an installed plugin could not be loaded, and WEAVE_PLUGINS_STRICT is set" in capsys.readouterr().err
    assert main([]) == 0, "the help is there all the same"
    assert "hello" in capsys.readouterr().out


def test_one_whose_arguments_raise(packages: Packages) -> None:
    packages.install("hi", HELLO.replace('parser.add_argument("who")', "raise ValueError('mine')"))
    assert main([]) == 0, "the help does not ask for them"
    with pytest.raises(ValueError, match="mine") as raised:
        main(["hello", "you"])
    assert raised.value.__notes__ == [
        "weave: raised by the arguments of the command 'hello' of the plugin 'hi' (hi 1.0)"
    ]


def test_what_a_command_raises_is_its_own_affair(packages: Packages) -> None:
    packages.install("hi", HELLO.replace("print(args.who, args.run)", "raise LookupError(args.who)"))
    with pytest.raises(LookupError, match="you"):
        main(["hello", "you"])


def test_one_that_is_disabled(
    packages: Packages, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    packages.install("hi", HELLO)
    monkeypatch.setenv("WEAVE_DISABLE_PLUGINS", "*")
    refused("hello", "you")
    assert "hi" not in sys.modules
