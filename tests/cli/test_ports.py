"""`weave ports module:attribute`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.small import EXT, knot
from weave import ModuleTarget, UnknownPortException
from weave.cli import main
from weave.cli.ports import load

pytestmark = pytest.mark.usefixtures("models")

NAMES = ["", "layers", "layers.0", "same", "odd"]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["ports", *arguments])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "some_models:Net")
    assert (status, err) == (0, "")
    head, *lines = out.splitlines()
    assert run(capsys, "torch.nn:Identity")[1].startswith("torch.nn:Identity: Identity, 1 path. It has")
    assert head.startswith("some_models:Net: Net, 5 paths")
    assert [line.split()[0] for line in lines] == [repr(name) for name in NAMES]
    assert [line.split()[1] for line in lines] == ["Net", "ModuleList", "Linear", "Linear", "Odd"]
    by_name = dict(zip(NAMES, lines, strict=True))
    assert "same module as 'layers.0'" in by_name["same"]
    assert "no port: a ModuleList is never called itself" in by_name["layers"]
    assert "no port: its class Odd has a __call__ of its own" in by_name["odd"]
    assert "no port" not in by_name["layers.0"]
    assert not any(line != line.rstrip() for line in lines)


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "some_models:Net", "--json")
    assert (status, err) == (0, "")
    rows = json.loads(out)
    assert [row["name"] for row in rows] == NAMES
    assert all(set(row) == {"name", "type", "same_as", "refusal"} for row in rows)
    by_name = {row["name"]: row for row in rows}
    assert by_name["same"]["same_as"] == "layers.0"
    assert by_name["layers.0"] == {"name": "layers.0", "type": "Linear", "same_as": "", "refusal": ""}
    assert by_name["layers"]["refusal"]


def test_what_it_lists_is_what_a_knot_takes(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "some_models:Net", "--json")
    net = load("some_models:Net")
    for row in json.loads(out):
        m = ModuleTarget("m", net)
        stitches = ((EXT.input("x"), m.input("")), (m.output(row["name"]), EXT.output("y")))
        if row["refusal"]:
            with pytest.raises(UnknownPortException, match="can't be stitched"):
                knot(*stitches)
        else:
            knot(*stitches)


@pytest.mark.parametrize(
    "where", ["some_models:Net", "some_models:instance", "some_models:make", "some_models:Space.inner", "torch.nn:ReLU"]
)
def test_a_module_a_class_or_a_function_that_makes_one(where: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, where)
    assert status == 0
    assert out.startswith(f"{where}: ")


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("some_models", "not of the form module:attribute"),
        (":Net", "not of the form module:attribute"),
        ("some_models:", "not of the form module:attribute"),
        ("", "not of the form module:attribute"),
        ("no_such_models:Net", "can't import 'no_such_models'"),
        ("some_models:Nett", "has no 'Nett'"),
        ("some_models:Space.outer", "has no 'Space.outer'"),
        ("some_models:number", "is a int, not an nn.Module"),
        ("some_models:needs", "calling some_models:needs without arguments failed"),
        ("some_models:fails", "no weights here"),
        ("os:getcwd", "is a str, not an nn.Module"),
        ("broken_models:Net", "half written"),
        ("misspelt_models:Net", "invalid syntax"),
        (".some_models:Net", ".some_models"),
    ],
)
def test_what_can_not_be_listed_is_said_in_a_sentence_and_2(
    where: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(capsys, where)
    assert (status, out) == (2, "")
    assert err.startswith("weave ports: ")
    assert said in err
    assert len(err.splitlines()) == 1
    assert "Traceback" not in err


def test_a_module_beside_the_user_is_found(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (models / "package").mkdir()
    (models / "package" / "__init__.py").write_text("from some_models import Net as Inner\n")
    assert run(capsys, "package:Inner")[0] == 0


def test_no_module_at_all(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["ports"])
    assert stopped.value.code == 2
    assert "MODULE:ATTRIBUTE" in capsys.readouterr().err
