"""`InputArgs`: a call's arguments as a value."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict, UserList, namedtuple
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils.rnn import pack_sequence

from weave import InputArgs

Pair = namedtuple("Pair", "a b")


class MyList(list[Any]):
    pass


class MyTuple(tuple[Any, ...]):
    pass


values = st.integers() | st.text(max_size=3) | st.none()
# Any text: keywords that are no identifiers come in by ** too.
keywords = st.dictionaries(st.sampled_from(["self", "args", "kwargs", "cls", "value", "k", "not a name"]), values)
calls = st.builds(lambda args, kwargs: InputArgs(*args, **kwargs), st.lists(values, max_size=5), keywords)


def said(call: InputArgs) -> tuple[list[Any], dict[str, Any]]:
    return list(call.args), dict(call.kwargs)


def test_args_are_a_list_and_kwargs_a_dict() -> None:
    call = InputArgs(1, "two", k=3)
    assert call.args == [1, "two"]
    assert type(call.args) is list
    assert call.kwargs == {"k": 3}
    assert type(call.kwargs) is dict
    empty = InputArgs()
    assert said(empty) == ([], {})


def test_keywords_of_any_name() -> None:
    call = InputArgs(1, self=2, args=3, kwargs=4, cls=5, index=6, **{"not a name": 7})
    assert call.args == [1]
    assert call.kwargs == {"self": 2, "args": 3, "kwargs": 4, "cls": 5, "index": 6, "not a name": 7}


def test_repr_shows_the_call() -> None:
    assert repr(InputArgs(1, "x", k=[2])) == "InputArgs(1, 'x', k=[2])"
    assert repr(InputArgs()) == "InputArgs()"


# --- from_value ---


def test_from_value_passes_an_input_args_through() -> None:
    call = InputArgs(1, k=2)
    assert InputArgs.from_value(call) is call


@pytest.mark.parametrize("sequence", [[1, [2, 3]], (1, [2, 3]), [], ()])
def test_from_value_spreads_exactly_list_and_tuple(sequence: Any) -> None:
    call = InputArgs.from_value(sequence)
    assert said(call) == (list(sequence), {})
    assert call.args is not sequence


@pytest.mark.parametrize(
    "value",
    [
        "text",
        b"bytes",
        bytearray(b"bytes"),
        Pair(1, 2),
        torch.Size([2, 3]),
        torch.return_types.max((torch.ones(1), torch.zeros(1))),
        pack_sequence([torch.ones(2, 1), torch.ones(1, 1)]),
        MyList([1, 2]),
        MyTuple((1, 2)),
        UserList([1, 2]),
        {"a": 1},
        OrderedDict(a=1),
        {1, 2},
        range(3),
        torch.arange(3),
        None,
        3,
        iter([1, 2]),
    ],
    ids=lambda v: type(v).__name__,
)
def test_from_value_makes_everything_else_one_positional(value: Any) -> None:
    call = InputArgs.from_value(value)
    assert len(call.args) == 1
    assert call.args[0] is value
    assert call.kwargs == {}


# --- + ---


@given(calls, calls)
def test_plus_joins_positionals_and_lets_the_right_ones_keywords_win(a: InputArgs, b: InputArgs) -> None:
    before = said(a), said(b)
    both = a + b
    assert both.args == a.args + b.args
    assert both.kwargs == {**a.kwargs, **b.kwargs}
    # The operands are left alone, also by what somebody then does to the sum.
    both.args.append("new")
    both.kwargs["new"] = 1
    assert (said(a), said(b)) == before


@given(calls, calls, calls)
def test_plus_is_associative_and_the_empty_call_its_unit(a: InputArgs, b: InputArgs, c: InputArgs) -> None:
    assert said((a + b) + c) == said(a + (b + c))
    assert said(a + InputArgs()) == said(InputArgs() + a) == said(a)


@pytest.mark.parametrize("other", [(1,), [1], {"k": 1}, 1, None])
def test_plus_takes_nothing_else(other: Any) -> None:
    with pytest.raises(TypeError):
        InputArgs(1) + other
    with pytest.raises(TypeError):
        other + InputArgs(1)


def test_plus_in_place_makes_a_new_one() -> None:
    first = total = InputArgs(1)
    total += InputArgs(2)
    assert (first.args, total.args) == ([1], [1, 2])


# --- drop_args, drop_kwargs ---


@given(calls, st.integers(-7, 7) | st.slices(5))
def test_drop_args_drops_what_del_would(call: InputArgs, index: int | slice) -> None:
    before = said(call)
    due = list(call.args)
    try:
        del due[index]
    except IndexError:
        with pytest.raises(IndexError, match="positional argument"):
            call.drop_args(index)
    else:
        dropped = call.drop_args(index)
        assert said(dropped) == (due, before[1])
        dropped.args.append("new")
        dropped.kwargs["new"] = 1
    assert said(call) == before


@given(calls)
def test_drop_args_of_none_drops_them_all(call: InputArgs) -> None:
    assert said(call.drop_args()) == said(call.drop_args(None)) == ([], call.kwargs)
    call.drop_args().kwargs["new"] = 1
    assert "new" not in call.kwargs


def test_drop_args_out_of_range_points_to_the_keywords() -> None:
    with pytest.raises(IndexError, match=r"drop_args\(1\).*1 positional.*\['mask'\].*drop_kwargs"):
        InputArgs(0, mask=1).drop_args(1)


@given(calls, st.lists(st.sampled_from(["self", "k", "absent"])))
def test_drop_kwargs_ignores_absent_names(call: InputArgs, names: list[str]) -> None:
    before = said(call)
    due = {k: v for k, v in call.kwargs.items() if k not in names}
    for given_as in (names, tuple(names), set(names), dict.fromkeys(names), iter(names)):
        dropped = call.drop_kwargs(given_as)
        assert said(dropped) == (call.args, due)
        dropped.args.append("new")
        dropped.kwargs["new"] = 1
    assert said(call) == before


@given(calls)
def test_drop_kwargs_of_none_drops_them_all(call: InputArgs) -> None:
    assert said(call.drop_kwargs()) == said(call.drop_kwargs(None)) == (call.args, {})
    call.drop_kwargs().args.append("new")
    assert "new" not in call.args


def test_a_string_is_one_name() -> None:
    assert InputArgs(mask=1, m=2).drop_kwargs("mask").kwargs == {"m": 2}


# --- copies ---


def test_pickles_and_copies() -> None:
    call = InputArgs([1], self=torch.ones(2))
    deep = copy.deepcopy(call)
    assert said(deep)[0] == [[1]]
    assert deep.args[0] is not call.args[0]
    assert torch.equal(deep.kwargs["self"], call.kwargs["self"])
    assert deep.kwargs["self"] is not call.kwargs["self"]
    loaded = pickle.loads(pickle.dumps(call))
    assert loaded.args == [[1]]
    assert torch.equal(loaded.kwargs["self"], torch.ones(2))
    assert copy.copy(call).args == [[1]]
