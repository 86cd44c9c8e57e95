"""Remote targets in a process that belongs to no world of ranks: built, stitched, checked, drawn; and a clear word instead
of a run. What happens between ranks is in `tests/remote`."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest

from tests.small import EXT, constant, knot, plus_one, sewn
from weave import (
    FunctionTarget,
    PeerLostException,
    RemoteException,
    RemoteTarget,
    StitchedModule,
    StitchedModuleException,
)


def middle_rank() -> StitchedModule:
    """Between two others; no external boundary."""
    before, after, f = RemoteTarget(0), RemoteTarget([2, 3], blocking=False), FunctionTarget("f", plus_one)
    return knot((before.value("h"), f.input()), (f.output(), after.value("h")), (f.output(), before.value("ack")))


def test_a_middle_rank_knots_without_an_external_boundary() -> None:
    plan = middle_rank().plan
    assert [(u.node, u.role) for u in plan.units] == [
        ("remote[0].receive('h')", "receive"),
        ("f", "fire"),
        ("remote[0].send('ack')", "send"),
        ("remote[2,3].send('h')", "send"),
    ]


def test_it_can_be_looked_at() -> None:
    stitched = middle_rank()
    assert "remote[2,3].output('h') <- f.output()" in stitched.describe()
    assert ":::remote" in stitched.plan.to_mermaid()
    assert json.loads(json.dumps(stitched.plan.to_dict())) == stitched.plan.to_dict()
    assert "remote[0].receive('h')" in repr(stitched)


def test_it_copies_and_pickles() -> None:
    stitched = middle_rank()
    for other in (copy.deepcopy(stitched), pickle.loads(pickle.dumps(stitched))):
        assert other.plan == stitched.plan


@pytest.mark.parametrize(
    ("stitches", "node", "rank"),
    [
        (
            lambda f: [(RemoteTarget(4).value("h"), f.input()), (f.output(), EXT.output("y"))],
            "remote[4].receive('h')",
            4,
        ),
        (lambda f: [(constant(1), RemoteTarget(5).value("h"))], "remote[5].send('h')", 5),
        (lambda f: [(constant(1), RemoteTarget([6, 7], blocking=False).value("h"))], "remote[6,7].send('h')", 6),
    ],
)
def test_running_one_says_that_this_process_belongs_to_no_world(stitches: Any, node: str, rank: int) -> None:
    stitched = sewn(*stitches(FunctionTarget("f", plus_one))).knot()
    with pytest.raises(
        RemoteException, match=r"no world of ranks.*init_process_group.*remote\.join.*run_local"
    ) as raised:
        stitched({}, {})
    error = raised.value
    assert (error.node, error.rank) == (node, rank)
    assert repr(node) in str(error)
    assert f"rank {rank}" in str(error)
    assert isinstance(error, StitchedModuleException)
    assert isinstance(error, RuntimeError)
    assert not isinstance(error, PeerLostException)


def test_nothing_of_such_a_graph_runs() -> None:
    """A run has its identity on all ranks before anything else, so that none computes what nobody will take."""
    ran: list[Any] = []
    f = FunctionTarget("f", lambda x: ran.append(x) or x)
    stitched = knot((EXT.input("x"), f.input()), (f.output(), RemoteTarget(1).value("h")))
    for _ in range(2):
        with pytest.raises(RemoteException, match="belongs to no world"):
            stitched({"x": 1}, {})
    assert not ran
