"""A graph as text and as a picture."""

from __future__ import annotations

import functools
from typing import Any

from torch import nn

from tests.small import EXT, Tiny, knot, module, plus_one
from weave import ConstantTarget, FunctionTarget, Plan, RemoteTarget
from weave.graph.render import callable_name


def example() -> Any:
    m, f, remote = module(Tiny(), "teacher"), FunctionTarget("loss", plus_one), RemoteTarget(1)
    return knot(
        (EXT.input("x"), m.input("")),
        (m.output("a"), f.input(adapter="first")),
        (ConstantTarget("scale", 2).output(), f.input(reducer="sum")),
        (f.output(), EXT.output("y")),
        (m.output("b", call="all"), remote.value("h")),
    )


def test_the_text() -> None:
    assert example().describe() == (
        "4 units, 5 stitches\n"
        "  teacher: module Tiny\n"
        "    teacher.input('') <- external.input('x')\n"
        "  scale: constant int\n"
        "  remote[1].send('h'): remote[1]\n"
        "    remote[1].output('h') <- teacher.output('b', call='all')\n"
        "  loss: function plus_one\n"
        "    loss.input() <- teacher.output('a')  (adapter=first)\n"
        "    loss.input() <- scale.output()  (reducer=sum)\n"
        "  to the caller:\n"
        "    external.output('y') <- loss.output()"
    )


def test_the_picture() -> None:
    stitched = example()
    lines = stitched.plan.to_mermaid().splitlines()
    assert lines[0] == "flowchart TD"
    boxes = [line.strip() for line in lines if '"' in line and "-->" not in line]
    assert boxes == [
        'n0["teacher<br/><i>module Tiny</i>"]',
        'n1>"scale<br/><i>constant int</i>"]',
        "n2([\"remote[1].send('h')\"]):::remote",
        'n3("loss<br/><i>function plus_one</i>")',
        'given(["caller"]):::caller',
        'taken(["caller"]):::caller',
    ]
    arrows = {line.strip() for line in lines if "-->" in line}
    assert arrows == {
        'given -->|"in x → in"| n0',
        'n0 -->|"out a"| n3',
        "n1 --> n3",
        'n3 -->|"out y"| taken',
        'n0 -->|"out b call all → out h"| n2',
    }


def test_names_can_not_break_the_picture() -> None:
    """Quotes and bars would end a label early, a line break the line, and angle brackets make an unknown tag of a name."""
    names = ('say "hi" | there', "two\nlines", "<lambda>", "`code`", "a\0b")
    targets = [FunctionTarget(name, lambda: 1) for name in names]
    picture = knot(*[(t.output(), EXT.output(t.name)) for t in targets]).plan.to_mermaid()
    assert '"hi"' not in picture
    assert "| there" not in picture
    assert "two\nlines" not in picture
    assert "<lambda>" not in picture
    assert "lambda" in picture
    assert "`" not in picture, "a label that begins with one is Markdown, and ends at the next"
    assert "\0" not in picture
    assert picture.count("\n") == 1 + 5 + 1 + 5 + 1, "flowchart, nodes, the caller, arrows, a class"


def test_a_graph_without_a_caller_draws_none() -> None:
    f = FunctionTarget("f", plus_one)
    remote = RemoteTarget(1)
    picture = knot((remote.value("a"), f.input()), (f.output(), remote.value("a"))).plan.to_mermaid()
    assert "caller([" not in picture
    assert 'given(["caller"])' not in picture
    assert 'taken(["caller"])' not in picture


def test_a_large_graph_is_cut_short() -> None:
    functions = [FunctionTarget(f"f{i}", plus_one) for i in range(1000)]
    stitched = knot(
        *[(EXT.input("x"), f.input()) for f in functions], *[(f.output(), EXT.output(f.name)) for f in functions]
    )
    text = stitched.describe()
    assert "... and 800 more units" in text
    assert "... and 800 more" in text.splitlines()[-1]
    assert len(text.splitlines()) < 700
    assert len(repr(stitched).splitlines()) <= 5
    assert repr(stitched).startswith("StitchedModule(1000 nodes, 2000 stitches: f0, f1, ")
    assert repr(stitched.plan) == "<Plan: 1000 units, 2000 stitches>"


def test_the_repr_says_what_goes_in_and_out() -> None:
    text = repr(example())
    assert text == (
        "StitchedModule(4 nodes, 5 stitches: teacher, scale, remote[1].send('h'), loss\n"
        "  takes input 'x'\n"
        "  gives output 'y'\n"
        ")"
    )


def test_a_stitched_module_inside_another_module_prints() -> None:
    assert "takes input 'x'" in str(nn.Sequential(example()))


def test_names_of_callables() -> None:
    def local() -> None:
        pass

    class Callable_:
        def __call__(self) -> None:
            pass

    assert callable_name(local) == "local"
    assert callable_name(nn.Linear(1, 1)) == "Linear"
    assert callable_name(Callable_()) == "Callable_"
    assert callable_name(functools.partial(plus_one, 1)) == "partial"
    assert callable_name("sum") == "sum"


def test_str_of_a_plan_is_the_description() -> None:
    stitched = example()
    assert isinstance(stitched.plan, Plan)
    assert str(stitched.plan) == stitched.describe()
