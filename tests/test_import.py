"""`import weave` is cheap and quiet. Looked at in fresh interpreters, because this one has long imported torch."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

import weave

# What costs something to import. None of it belongs to `import weave`.
HEAVY = ("torch", "pluggy", "anyio", "structlog", "numpy", "asyncio", "transformers", "rich", "matplotlib")


def fresh(program: str, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *flags, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False
    )


def test_import_weave_imports_nothing_heavy() -> None:
    done = fresh(
        """
        import sys
        before = set(sys.modules)
        import weave
        new = set(sys.modules) - before
        print(len(new), *sorted(new))
        """
    )
    assert done.returncode == 0, done.stderr
    count, *names = done.stdout.split()
    assert not [n for n in names if n.split(".")[0] in HEAVY]
    assert [n for n in names if n.split(".")[0] == "weave"] == ["weave"]
    # What counts as cheap, in modules rather than in a time that depends on the machine: importlib, typing and theirs.
    assert int(count) < 40, names


def test_an_error_can_be_named_without_torch() -> None:
    done = fresh("import sys, weave; weave.OverridesException; print('torch' in sys.modules)")
    assert done.stdout.split() == ["False"], done.stderr


def test_nothing_is_printed_and_nothing_warns() -> None:
    """Unconfigured structlog prints every line to stdout; torch and plugins warn. A user sees none of it."""
    done = fresh(
        """
        import weave
        from torch import nn, zeros
        ext, net = weave.ExternalTarget(), weave.ModuleTarget("m", nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
        f = weave.FunctionTarget("f", lambda x: x + 1)
        stitched = (
            weave.Needle()
            .stitch(ext.input("x"), net.input(""))
            .stitch(net.output("0"), f.input(adapter="clone"))
            .stitch(f.output(), ext.output("y"))
            .knot()
        )
        stitched({"x": zeros(1, 2)}, {})
        try:
            stitched({}, {})
        except weave.OverridesException:
            pass
        """,
        "-W",
        "error",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_name_loads() -> None:
    for name in weave.__all__:
        assert getattr(weave, name) is getattr(weave, name)
    assert dir(weave) == sorted(weave.__all__)


def test_a_star_import_gives_every_name() -> None:
    names: dict[str, object] = {}
    exec("from weave import *", names)
    assert set(weave.__all__) <= set(names)


def test_a_loaded_name_is_kept() -> None:
    assert weave.Needle is vars(weave)["Needle"]


def test_unknown_names() -> None:
    with pytest.raises(AttributeError, match="module 'weave' has no attribute 'nope'"):
        weave.nope
    with pytest.raises(ImportError):
        from weave import nope  # noqa: F401


@pytest.mark.parametrize("name", ["init", "op", "publish"])
def test_names_of_the_other_weave_stay_free(name: str) -> None:
    """PyPI's `weave` is another project; code written for it must fail here at once, not half-way."""
    assert not hasattr(weave, name)
