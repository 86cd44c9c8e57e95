"""Classes that travel because somebody said how; and that nothing on the way can run what a peer sends."""

from __future__ import annotations

import ast
import dataclasses
import pkgutil
from collections import namedtuple
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

import weave.remote
from tests.remote import values
from tests.remote.test_tensors import sent, taken
from weave.errors import RemoteException
from weave.remote import register_class, register_codec, registered


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers ends with it."""
    monkeypatch.setattr(registered, "_by_kind", dict(registered._by_kind))
    monkeypatch.setattr(registered, "_by_name", dict(registered._by_name))


def test_a_codec_lets_a_class_travel() -> None:
    register_codec(Fraction, "fraction", lambda f: (f.numerator, f.denominator), lambda p: Fraction(*p))
    value = {"a": [Fraction(1, 3)], Fraction(2): 1}
    assert taken(sent(value)) == value


def test_a_codec_may_make_tensors_and_other_registered_classes() -> None:
    register_codec(
        Fraction, "fraction", lambda f: values.Pair(torch.tensor(f.numerator), f.denominator), lambda p: (p.left, p)
    )
    tensor, pair = taken(sent(Fraction(5, 3)))
    assert (tensor.item(), type(pair), pair.right) == (5, values.Pair, 3)


def test_a_layout_lets_its_tensors_travel() -> None:
    def parts(t: torch.Tensor) -> Any:
        return (t.coalesce().indices(), t.coalesce().values(), t.shape)

    register_codec(torch.sparse_coo, "coo", parts, lambda p: torch.sparse_coo_tensor(*p, check_invariants=True))
    dense = torch.tensor([[0.0, 2.0], [3.0, 0.0]])
    back = taken(sent([dense.to_sparse(), dense]))
    assert back[0].layout is torch.sparse_coo
    assert back[0].to_dense().tolist() == back[1].tolist() == dense.tolist()


def test_a_subclass_of_a_registered_class_does_not_travel_as_it() -> None:
    class More(values.Pair):
        pass

    with pytest.raises(RemoteException, match=r"class .*More: give weave.remote.register_class"):
        sent(More(1))


def test_a_codec_that_fails_says_which_and_where() -> None:
    def broken(_: Any) -> Any:
        raise KeyError("gone")

    register_codec(Fraction, "fraction", broken, lambda p: p)
    with pytest.raises(
        RemoteException, match=r"'teacher' can't send 'hidden': value\[1\] is a fraction, and its codec"
    ) as caught:
        sent([0, Fraction(1)])
    assert isinstance(caught.value.__cause__, KeyError)
    register_codec(Fraction, "fraction", str, broken)
    with pytest.raises(
        RemoteException, match=r"'student' can't take 'hidden': value\[1\] is a fraction, which"
    ) as caught:
        taken(sent([0, Fraction(1)]))
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_codec_that_never_gets_plain_is_stopped() -> None:
    register_codec(Fraction, "fraction", lambda f: f + 1, lambda p: p)
    with pytest.raises(RemoteException, match="nested more than 64 deep"):
        sent(Fraction(1))
    register_codec(Fraction, "fraction", lambda f: f, lambda p: p)
    with pytest.raises(RemoteException, match="holds itself"):
        sent(Fraction(1))


def test_a_class_the_receiver_has_not_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    came = sent(values.Pair(1))
    del registered._by_name["tests.remote.values.Pair"]
    with pytest.raises(
        RemoteException, match=r"registered as 'tests.remote.values.Pair', and this rank has not: give the same"
    ):
        taken(came)


def test_classes_by_their_fields() -> None:
    @register_class
    @dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
    class Batch:
        ids: torch.Tensor
        note: str = ""

    @register_class
    class Named(NamedTuple):
        a: int
        b: Any = None

    old = register_class(namedtuple("old", "x y"), "old one")
    back = taken(sent([Batch(ids=torch.arange(2), note="n"), Named(1), old(1, 2)]))
    assert [type(item) for item in back] == [Batch, Named, old]
    assert (back[0].ids.tolist(), back[0].note, back[1:]) == ([0, 1], "n", [Named(1), old(1, 2)])


def test_classes_whose_fields_do_not_suffice() -> None:
    @dataclasses.dataclass
    class Asks:
        x: int
        y: dataclasses.InitVar[int]

    @dataclasses.dataclass(init=False)
    class Own:
        x: int

        def __init__(self, other: int) -> None:
            self.x = other

    class Derived(values.Pair):
        pass

    for cls in (Asks, Own, Derived):
        with pytest.raises(TypeError, match=r"constructor doesn't take just its fields.*use register_codec"):
            register_class(cls)
    for other in (Fraction, 3, values.Pair(1)):
        with pytest.raises(TypeError, match="neither a dataclass nor a named tuple: use register_codec"):
            register_class(other)  # type: ignore[type-var]


def test_names_and_classes_are_registered_once() -> None:
    register_codec(Fraction, "fraction", str, Fraction)
    register_codec(Fraction, "fraction", str, Fraction)  # again, as in a notebook
    with pytest.raises(ValueError, match=r"fractions.Fraction is registered as 'fraction'"):
        register_codec(Fraction, "other", str, Fraction)
    with pytest.raises(ValueError, match=r"fractions.Fraction is registered as 'fraction'"):
        register_codec(Path, "fraction", str, Path)
    with pytest.raises(ValueError, match="InputArgs is registered as"):
        register_codec(weave.InputArgs, "mine", str, str)
    for cls in (int, str, dict, torch.Tensor, torch.strided):
        with pytest.raises(ValueError, match="travel as they are"):
            register_codec(cls, "x", str, str)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a class, or a layout"):
        register_codec("int", "x", str, str)  # type: ignore[arg-type]
    for name in ("", "x" * 257, "a\nb", "\ud800", None):
        with pytest.raises(ValueError, match="printable"):
            register_codec(Path, name, str, Path)  # type: ignore[arg-type]
    assert registered.codec_for(Path()) is None, "what was refused has left nothing"


def test_a_class_made_anew_takes_the_place_of_the_old() -> None:
    def cell() -> Any:
        @register_class
        @dataclasses.dataclass
        class Cell:
            x: int

        return Cell

    first, second = cell(), cell()
    assert type(taken(sent(second(1)))) is second
    with pytest.raises(RemoteException, match=r"class .*Cell"):
        sent(first(1))


# --- no foreign code ---

FORBIDDEN_IMPORTS = {
    "pickle",
    "cPickle",
    "_pickle",
    "dill",
    "cloudpickle",
    "marshal",
    "shelve",
    "joblib",
    "runpy",
    "imp",
}
FORBIDDEN_NAMES = {"eval", "exec", "compile", "__import__", "import_module", "recv_pyobj", "send_pyobj", "unpickle"}
FORBIDDEN_CALLS = {("torch", "load"), ("torch", "save"), ("msgspec", "json"), ("os", "system")}
# The package's lazy attributes: names of its own modules, out of its own table.
ALLOWED = {("__init__", "import_module")}


def _offences(tree: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {a.name.split(".")[0] for a in node.names} & FORBIDDEN_IMPORTS
        elif isinstance(node, ast.ImportFrom):
            found |= {(node.module or "").split(".")[0]} & FORBIDDEN_IMPORTS
            found |= {a.name for a in node.names} & (FORBIDDEN_NAMES | FORBIDDEN_IMPORTS)
        elif isinstance(node, ast.Name):
            found |= {node.id} & FORBIDDEN_NAMES
        elif isinstance(node, ast.Attribute):
            found |= {node.attr} & FORBIDDEN_NAMES - {"compile"}
            if isinstance(node.value, ast.Name) and (node.value.id, node.attr) in FORBIDDEN_CALLS:
                found.add(f"{node.value.id}.{node.attr}")
    return found


def test_no_module_of_the_link_can_run_what_comes() -> None:
    root = Path(weave.remote.__file__).parent
    modules = [name for _, name, _ in pkgutil.walk_packages([str(root)])]
    assert {"codec", "reading", "wire", "registered", "tensors"} <= set(modules)
    for path in sorted(root.rglob("*.py")):
        found = {(path.stem, name) for name in _offences(ast.parse(path.read_text()))}
        assert found <= ALLOWED, path


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "import torch\ntorch.load(x)",
        "eval(x)",
        "import importlib\nimportlib.import_module(x)",
        "from importlib import import_module",
        "socket.recv_pyobj()",
        "from multiprocessing.reduction import pickle",
    ],
)
def test_the_search_finds_what_it_looks_for(source: str) -> None:
    assert _offences(ast.parse(source))
