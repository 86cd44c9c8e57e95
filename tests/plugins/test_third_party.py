"""The executor protocol, by a target type that is nobody's but this test's: records, firings, resources."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
import torch
from torch import nn

import weave.stitched
from tests.small import EXT, constant, knot, packed, plus_one
from weave import (
    CantResolveNodeDependenciesException,
    FunctionTarget,
    InputArgs,
    KnotException,
    PluginException,
    StitchedModuleException,
    UnknownPortException,
)
from weave.builtin import PLUGINS
from weave.engine.program import bind
from weave.graph.check import check_form
from weave.graph.plan import build, gather, node_ids
from weave.graph.targets import TargetWithNamedInputs, TargetWithNamedOutputs
from weave.plugins import Executor, Firing, PluginSet, Preparation, Registry, TargetType, hookimpl


@dataclass(eq=False)
class Board(TargetWithNamedInputs, TargetWithNamedOutputs):
    """A target with ports of any name: what comes in as "x" goes out as "x"."""

    name: str
    log: list[Any] = field(default_factory=list)
    net: Any = None


@dataclass(eq=False)
class Plugin:
    """Registers `Board` with whatever a test wants of it."""

    executor: Any
    more: dict[str, Any] = field(default_factory=dict)

    @hookimpl
    def weave_target_types(self) -> list[TargetType]:
        return [TargetType(name="board", target=Board, executor=self.executor, **self.more)]


class Echo:
    """Delivers under each output's name what came in under it."""

    def fire(self, firing: Firing) -> None:
        board: Any = firing.target
        board.log.append((firing.node, firing.args, dict(firing.kwargs)))
        for name in ("x", "y"):
            call = firing.inputs(name)
            if call.args:
                firing.deliver(name, call.args[0])


Register = Callable[..., None]


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Register:
    """Makes every knot see a plugin as if it were installed."""

    def register(executor: Any, **more: Any) -> None:
        monkeypatch.setattr(PluginSet, "installed", lambda: PluginSet(Plugin(executor, more)))

    return register


def board_of(*stitches: Callable[[Board], tuple[Any, Any]], board: Board | None = None) -> Any:
    board = board or Board("b")
    return knot(*[s(board) for s in stitches])


INTO_X: Any = lambda b: (EXT.input("x"), b.input("x"))  # noqa: E731
OUT_OF_X: Any = lambda b: (b.output("x"), EXT.output("x"))  # noqa: E731


# --- running ---


def test_a_target_type_of_somebody_elses_runs(register: Register) -> None:
    register(Echo())
    board = Board("b")
    stitched = board_of(INTO_X, OUT_OF_X, lambda b: (b.output("x"), EXT.input("again")), board=board)
    out = stitched({"x": 5}, {}, 1, k=2)
    assert out["x"] == 5
    assert out["again"].args == [5]
    assert board.log == [("b", (1,), {"k": 2})]


def test_its_nodes_stand_among_the_others(register: Register) -> None:
    register(Echo())
    board, f, g = Board("b"), FunctionTarget("f", plus_one), FunctionTarget("g", packed)
    stitched = knot(
        (EXT.input("x"), f.input()),
        (f.output(adapter=plus_one), board.input("x", adapter=lambda v: InputArgs(v * 2))),
        (board.output("x", adapter=plus_one), g.input()),
        (g.output(), EXT.output("y")),
    )
    assert stitched({"x": 1}, {})["y"] == ((7,), {})
    assert "b: Board" in stitched.describe()
    assert '"b<br/>' in stitched.plan.to_mermaid()
    assert stitched.plan.to_dict()["units"][1] == {"node": "b", "target": "Board", "role": "fire"}


def test_the_inputs_of_a_firing_are_reduced(register: Register) -> None:
    seen: list[Any] = []

    class Sees:
        def fire(self, firing: Firing) -> None:
            for _ in range(2):
                call = firing.inputs("x")
                seen.append((call.args, call.kwargs))
            seen.append(firing.inputs("nothing ends here").args)
            seen.append(firing.inputs("x", original=InputArgs(100)).args)

    register(Sees())
    ran: list[Any] = []

    def join(acc: InputArgs, value: InputArgs, original: InputArgs, index: int, every: Any) -> InputArgs:
        return acc + value + original

    board_of(
        lambda b: (constant(1), b.input("x", adapter=lambda v: ran.append(v) or v)),
        lambda b: (constant(InputArgs(2, k=3)), b.input("x", reducer=join)),
        lambda b: (constant(9), b.input("z")),
        lambda b: (EXT.input("x"), EXT.input("x")),
    )({"x": 0}, {})
    assert seen == [([1, 2], {"k": 3}), ([1, 2], {"k": 3}), [], [1, 2, 100]]
    assert ran == [1], "adapters ran once, reducers each time"


def test_a_value_may_be_delivered_before_the_firing_has_ended(register: Register) -> None:
    """Its source adapter runs then."""
    order: list[str] = []

    class Early:
        def fire(self, firing: Firing) -> None:
            firing.deliver("x", 1)
            order.append("still firing")

    register(Early())
    out = board_of(lambda b: (b.output("x", adapter=lambda v: order.append("adapted") or v), EXT.output("x")))({}, {})
    assert order == ["adapted", "still firing"]
    assert out["x"] == 1


def test_a_port_that_nobody_stitched_may_be_delivered_to(register: Register) -> None:
    class Generous:
        def fire(self, firing: Firing) -> None:
            for name in ("x", "y", "z"):
                firing.deliver(name, name)

    register(Generous())
    assert board_of(OUT_OF_X)({}, {}).captured_outputs == {"x": "x"}


def test_a_port_that_was_not_delivered_is_found_out(register: Register) -> None:
    class Miser:
        def fire(self, firing: Firing) -> None:
            firing.deliver("x", 1)

    register(Miser())
    f = FunctionTarget("f", plus_one)
    for end in (lambda b: (b.output("y"), EXT.output("y")), lambda b: (b.output("y"), f.input())):
        with pytest.raises(
            CantResolveNodeDependenciesException, match=r"b\.output\('y'\).*'b' ended without"
        ) as raised:
            board_of(OUT_OF_X, end)({}, {})
        assert "deliver" in str(raised.value)


def test_what_an_executor_raises_arrives_as_it_is(register: Register) -> None:
    error = ValueError("mine")

    class Fails:
        def fire(self, firing: Firing) -> None:
            raise error

    register(Fails())
    with pytest.raises(ValueError, match="mine") as raised:
        board_of(INTO_X)({"x": 1}, {})
    assert raised.value is error
    assert "node 'b'" in error.__notes__[0]


def test_an_asynchronous_executor(register: Register) -> None:
    """It can hop into a thread; what it delivers goes on; a synchronous call runs it on a loop of its own."""

    class Waits:
        async def fire(self, firing: Firing) -> None:
            firing.deliver("x", await firing.blocking(lambda value: value + 1, 1))

    register(Waits())
    assert board_of(OUT_OF_X)({}, {})["x"] == 2
    assert anyio.run(board_of(OUT_OF_X).run, {}, {})["x"] == 2
    assert anyio.run(board_of(OUT_OF_X).run, {}, {}, backend="trio")["x"] == 2


def test_a_plain_executor_that_gives_something_to_await(register: Register) -> None:
    class Waits:
        def fire(self, firing: Firing) -> Any:
            async def later() -> None:
                firing.deliver("x", 1)

            return later()

    register(Waits())
    with pytest.raises(StitchedModuleException, match=r"'b' .*await"):
        board_of(OUT_OF_X)({}, {})
    assert anyio.run(board_of(OUT_OF_X).run, {}, {})["x"] == 1


def test_check_cancelled_is_there_and_passes(register: Register) -> None:
    class Polite:
        def fire(self, firing: Firing) -> None:
            firing.check_cancelled()
            firing.deliver("x", 1)

    register(Polite())
    assert board_of(OUT_OF_X)({}, {})["x"] == 1


def test_a_changed_tensor_is_noticed_of_any_target_type(register: Register) -> None:
    class Late:
        def fire(self, firing: Firing) -> None:
            value = torch.zeros(1)
            firing.deliver("x", value)
            value.add_(1)

    register(Late())
    with pytest.raises(StitchedModuleException, match=r"b\.output\('x'\).*by 'b' itself"):
        board_of(OUT_OF_X)({}, {})


def test_an_executor_with_a_function_is_called_as_one(register: Register) -> None:
    """With reducers too; `fire` is for the cases where a firing is more than a call."""

    class Call:
        def __init__(self) -> None:
            self.fired = self.asked = 0

        def function(self, target: Board) -> Any:
            self.asked += 1
            return target.net

        def fire(self, firing: Firing) -> None:
            self.fired += 1
            call, board = firing.inputs(), firing.target
            firing.deliver("", board.net(*call.args, **call.kwargs))  # type: ignore[attr-defined]

    for options in ({}, {"reducer": "sum"}):
        executor = Call()
        register(executor)
        board = Board("b", net=packed)
        stitched = knot((EXT.input("x"), board.input("", **options)), (board.output(""), EXT.output("y")))
        assert stitched({"x": InputArgs(1, k=2)}, {})["y"] == ((1,), {"k": 2})
        assert (executor.asked, executor.fired) == (1, 0)


def test_the_protocol_can_be_asked_for() -> None:
    assert isinstance(Echo(), Executor)
    assert not isinstance(object(), Executor)


# --- at the knot ---


def test_without_a_record_it_is_refused_at_the_knot() -> None:
    with pytest.raises(PluginException, match="no executor is registered for Board"):
        board_of(INTO_X)


def test_a_record_without_an_executor_is_refused_at_the_knot(register: Register) -> None:
    register(None)
    with pytest.raises(PluginException, match="'board' has no executor"):
        board_of(INTO_X)


@pytest.mark.parametrize("direction", ["sources", "destinations"])
def test_directions_come_from_the_record(register: Register, direction: str) -> None:
    register(Echo(), **{direction: ()})
    with pytest.raises(UnknownPortException, match="none of its ports can"):
        board_of(INTO_X, OUT_OF_X)
    register(Echo(), sources=("input", "output"), destinations=("input", "output"))
    board_of(INTO_X, OUT_OF_X, lambda b: (b.input("x"), EXT.input("y")), lambda b: (EXT.output("o"), b.output("x")))


def test_prepare_sees_the_node_and_what_it_returns_is_in_every_firing(register: Register) -> None:
    seen: list[Any] = []

    def prepare(node: Preparation) -> Any:
        seen.append(node)
        return {"made": len(seen)}

    class Prepared:
        def fire(self, firing: Firing) -> None:
            firing.deliver("x", firing.prepared)

    register(Prepared(), prepare=prepare)
    board = Board("b")
    stitched = knot(INTO_X(board), (EXT.input("z"), board.input("x")), OUT_OF_X(board), early_exit=False)
    (node,) = seen
    assert node.target is board
    assert node.node == "b"
    assert [(p.kind, p.name, len(p.edges)) for p in node.inputs] == [("input", "x", 2)]
    assert [(p.kind, p.name, len(p.exits)) for p in node.outputs] == [("output", "x", 1)]
    assert node.early_exit is False
    assert node.cache_predicate is None
    first, second = stitched({"x": 1, "z": 2}, {})["x"], stitched({"x": 1, "z": 2}, {})["x"]
    assert first is second
    assert first == {"made": 1}, "asked once, when the knot was tied"


def named_y(name: str, part: nn.Module) -> bool:
    return name == "y"


def test_prepare_may_refuse(register: Register) -> None:
    def prepare(node: Preparation) -> Any:
        raise UnknownPortException("no such pin", node=node.node, port="x")

    register(Echo(), prepare=prepare)
    with pytest.raises(KnotException, match="no such pin"):
        board_of(INTO_X)


def test_the_knots_options_reach_prepare(register: Register) -> None:
    seen: list[Any] = []
    register(Echo(), prepare=seen.append)
    board = Board("b")
    knot(INTO_X(board), capture_cache_outputs_predicate=named_y)
    assert seen[0].early_exit is True
    assert seen[0].cache_predicate is named_y


def test_what_it_owns_belongs_to_the_stitched_module(register: Register) -> None:
    register(Echo(), owns=lambda board: [board.net])
    stitched = board_of(INTO_X, OUT_OF_X, board=Board("b", net=nn.Linear(1, 1)))
    assert list(stitched.state_dict()) == ["b.weight", "b.bias"]


# --- resources ---


class Opened:
    """A resource that keeps book of its life."""

    def __init__(self) -> None:
        self.log: list[str] = []

    @contextlib.contextmanager
    def make(self, target: Board) -> Iterator[str]:
        self.log.append(f"open {target.name}")
        try:
            yield f"connection of {target.name}"
        finally:
            self.log.append(f"close {target.name}")


class Uses:
    def fire(self, firing: Firing) -> None:
        firing.deliver("x", firing.resources)


def test_resources_are_open_inside_with(register: Register) -> None:
    opened = Opened()
    register(Uses(), resources=opened.make)
    stitched = board_of(OUT_OF_X)
    with stitched as entered:
        assert entered is stitched
        assert opened.log == ["open b"]
        assert stitched({}, {})["x"] == stitched({}, {})["x"] == "connection of b"
        assert opened.log == ["open b"]
    assert opened.log == ["open b", "close b"]


def test_without_with_a_target_that_needs_them_says_so(register: Register) -> None:
    register(Uses(), resources=Opened().make)
    stitched = board_of(OUT_OF_X)
    for _ in range(2):
        with pytest.raises(StitchedModuleException, match=r"'b' needs resources that are not open.*with stitched"):
            stitched({}, {})
        with stitched:
            stitched({}, {})


def test_a_target_that_does_not_ask_needs_no_with(register: Register) -> None:
    opened = Opened()
    register(Echo(), resources=opened.make)
    assert board_of(INTO_X, OUT_OF_X)({"x": 1}, {})["x"] == 1
    assert opened.log == []


def test_resources_are_closed_after_an_error_in_reverse_order(register: Register) -> None:
    opened = Opened()
    register(Echo(), resources=opened.make)
    one, two = Board("one"), Board("two")
    stitched = knot(INTO_X(one), (one.output("x"), two.input("x")), OUT_OF_X(two))
    with pytest.raises(ValueError, match="mine"), stitched:
        raise ValueError("mine")
    assert opened.log[2:] == [line.replace("open", "close") for line in reversed(opened.log[:2])]
    assert set(opened.log[:2]) == {"open one", "open two"}


def test_where_one_can_not_be_opened_the_others_are_closed(register: Register) -> None:
    opened = Opened()

    def make(target: Board) -> Any:
        if target.name == "bad":
            raise OSError("no connection")
        return opened.make(target)

    register(Uses(), resources=make)
    good, bad = Board("good"), Board("bad")
    stitched = knot(OUT_OF_X(good), (bad.output("x"), EXT.output("bad")))
    with pytest.raises(OSError, match="no connection"), stitched:
        pass
    assert opened.log == ["open good", "close good"]
    with pytest.raises(StitchedModuleException, match="not open"):
        stitched({}, {})


def test_entered_twice_what_was_opened_stays_open_until_the_outer_with_ends(register: Register) -> None:
    opened = Opened()
    register(Uses(), resources=opened.make)
    stitched = board_of(OUT_OF_X)
    with stitched:
        with stitched:
            assert stitched({}, {})["x"] == "connection of b"
        assert stitched({}, {})["x"] == "connection of b"
    assert opened.log.count("open b") == opened.log.count("close b")
    assert opened.log[-1] == "close b"


def test_a_copy_made_inside_with_has_none_of_them(register: Register) -> None:
    register(Uses(), resources=Opened().make)
    stitched = board_of(OUT_OF_X)
    with stitched:
        other = copy.deepcopy(stitched)
        with pytest.raises(StitchedModuleException, match="not open"):
            other({}, {})
        with other:
            assert other({}, {})["x"] == "connection of b"
        assert stitched({}, {})["x"] == "connection of b"


def test_a_graph_that_needs_none_can_be_entered() -> None:
    f = FunctionTarget("f", plus_one)
    with knot((EXT.input("x"), f.input()), (f.output(), EXT.output("y"))) as stitched:
        assert stitched({"x": 1}, {})["y"] == 2


# --- the layer below ---


def test_a_plan_is_bound_to_executors_by_any_registry() -> None:
    """What a knot does, step by step and without weave's own set of plugins."""
    registry = Registry([*PLUGINS, Plugin(Echo())])
    board, f = Board("b"), FunctionTarget("f", plus_one)
    needle = (
        weave.Needle().stitch(EXT.input("x"), f.input()).stitch(f.output(), board.input("x")).stitch(*OUT_OF_X(board))
    )
    ending = gather(needle.nodes)
    ids = node_ids(ending)
    check_form(ending, ids, registry.target_type)
    plan = build(ending, ids, lambda port: (port.adapter, port.reducer.reducer_fn, False))
    program = bind(plan, registry.target_type, early_exit=True, cache_predicate=None)
    assert program.plan is plan
    assert [unit.node for unit in plan.units] == ["f", "b"]
    assert program.calls[0] is plus_one, "a firing that is nothing but a call"
    assert program.calls[1] is None
    assert isinstance(program.bindings[1].executor, Echo)
