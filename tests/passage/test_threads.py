"""Runs and plain calls of shared modules from many threads at once: a run keeps all its state to itself."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn

import weave
from weave.passage.touch import release, touch_all

from .nets import Again, Chain, rows
from .stitching import ADDS, EXT, knot, ports, touched

THREADS, RUNS = 16, 40


@pytest.fixture(autouse=True)
def eager_switching() -> Iterator[None]:
    """Threads change places as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def all_at_once(jobs: list[Callable[[], None]]) -> None:
    """Run the jobs in a thread each, starting together. Raises the first failure."""
    gate = threading.Barrier(len(jobs))

    def enter(job: Callable[[], None]) -> None:
        gate.wait()
        job()

    with ThreadPoolExecutor(len(jobs)) as pool:
        for future in [pool.submit(enter, job) for job in jobs]:
            future.result()


def test_overriding_observing_and_plain_calls_of_one_model() -> None:
    net = nn.Sequential(Chain(), Again(3), Chain())
    m = weave.ModuleTarget("m", net)
    feed = (EXT.input("x"), m.input(""))
    observing = knot(
        feed,
        (m.output("0.b"), EXT.output("b")),
        (m.output("1.layer", call="all"), EXT.output("all")),
        (m.output(""), EXT.output("y")),
    )
    overriding = knot(
        feed,
        (EXT.output("v"), m.output("0.b")),
        (EXT.output("w"), m.output("1.layer", call=1, reducer=ADDS)),
        (m.output(""), EXT.output("y")),
    )
    leaving = ports(net, [], ["1"])
    sharing = ports(net[0], ["b", ""])

    def job(place: int) -> None:
        x = rows() + place
        v, w = torch.full((2, 3), place / 7), torch.full((2, 3), place / 9)
        first = net[0].steps(x)
        plain = net(x)
        replaced = torch.tanh(net[1].step(net[0].c(torch.tanh(v))))
        replaced = torch.tanh(net[1].step(replaced) + w)
        replaced = net[2](torch.tanh(net[1].step(replaced)))
        for turn in range(RUNS):
            match (place + turn) % 5:
                case 0:
                    got = observing({"x": x}, {})
                    assert torch.equal(got["b"], first["b"])
                    assert len(got["all"]) == 3
                    assert torch.equal(got["y"], plain)
                case 1:
                    assert torch.equal(overriding({"x": x}, {"v": v, "w": w})["y"], replaced)
                case 2:
                    assert torch.equal(net(x), plain)
                case 3:
                    assert torch.equal(leaving({"x": x}, {})["1"].args[0], first[""])
                case 4:
                    got = sharing({"x": x}, {})
                    assert torch.equal(got["b"], first["b"])
                    assert torch.equal(got[""], first[""])

    all_at_once([lambda place=place: job(place) for place in range(THREADS)])
    assert touched(net) == []


def test_graphs_that_share_modules_and_end_at_different_times() -> None:
    """A model used whole by one graph, in part by another, overridden by a third; each result is its own."""
    shared = Chain()
    models = [nn.Sequential(shared, Chain()), nn.Sequential(Chain(), shared), nn.Sequential(shared, shared)]
    graphs = [
        ports(models[0], ["0.b", ""]),
        ports(models[1], ["1.a", ""], new_inputs=["1.b"]),
        ports(models[2], [""], new_outputs=["0.b"]),
    ]

    def job(place: int) -> None:
        x, v = rows() - place, torch.full((2, 3), 0.1 * place)
        wanted: Any = [
            lambda: (shared.steps(x)["b"], models[0](x)),
            lambda: (shared.steps(models[1][0](x))["a"], shared.c(torch.tanh(shared.b(v)))),
            lambda: (None, shared.c(torch.tanh(v))),
        ]
        given: Any = [({"x": x}, {}), ({"x": x, "1.b": v}, {}), ({"x": x}, {"0.b": v})]
        which = place % 3
        inner, end = wanted[which]()
        for _ in range(RUNS):
            got = graphs[which](*given[which])
            assert torch.equal(got[""], end)
            if inner is not None:
                assert torch.equal(got["0.b" if which == 0 else "1.a"], inner)

    all_at_once([lambda place=place: job(place) for place in range(6)])
    assert [touched(m) for m in models] == [[], [], []]


def test_runs_that_raise_beside_runs_that_do_not() -> None:
    net, x = Chain(), rows()
    m = weave.ModuleTarget("m", net)
    stitched = knot((EXT.input("x"), m.input("")), (m.output("b"), EXT.output("b")), (m.output(""), EXT.output("y")))
    steps = net.steps(x)

    def fails() -> None:
        for _ in range(RUNS):
            with pytest.raises(RuntimeError, match="shapes"):
                stitched({"x": torch.ones(2, 4)}, {})

    def holds() -> None:
        for _ in range(RUNS):
            got = stitched({"x": x}, {})
            assert torch.equal(got["b"], steps["b"])
            assert torch.equal(got["y"], steps[""])

    all_at_once([fails, holds, fails, holds])
    assert touched(net) == []


def test_gradients_of_runs_at_once() -> None:
    net = Chain().requires_grad_(False)
    stitched = ports(net, ["b", ""])

    def job(place: int) -> None:
        x = (rows() + place).requires_grad_()
        (want,) = torch.autograd.grad(net.steps(x)["b"].pow(2).sum(), x)
        for turn in range(RUNS):
            if turn % 2:
                with torch.no_grad():
                    assert not stitched({"x": x}, {})[""].requires_grad
            else:
                (got,) = torch.autograd.grad(stitched({"x": x}, {})["b"].pow(2).sum(), x)
                assert torch.allclose(got, want)

    all_at_once([lambda place=place: job(place) for place in range(4)])


def test_a_million_install_and_remove_cycles_beside_plain_calls() -> None:
    """torch reads the attribute and calls it in two steps; no call may fall between the removal and the second one."""

    class Plain(nn.Module):
        def forward(self, x: int) -> int:
            return x + 1

    net, stop, errors = Plain(), threading.Event(), []

    def call() -> None:
        try:
            while not stop.is_set():
                for k in range(100):
                    assert net(k) == k + 1
        except BaseException as error:
            errors.append(error)

    caller, modules = threading.Thread(target=call), (net,)
    caller.start()
    try:
        for _ in range(1_000_000):
            release(touch_all(modules))
    finally:
        stop.set()
        caller.join()
    assert errors == []
    assert touched(net) == []
