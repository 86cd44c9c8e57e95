"""Data-parallel wrappers in two real processes (gloo): an early exit never leaves through them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.multiprocessing

from .ranks import SCENARIOS, WORLD, batch, fresh, grads, work

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available(), reason="torch was built without torch.distributed"
)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each rank gave, by scenario. All of them in one pair of processes: starting one costs seconds."""
    folder = tmp_path_factory.mktemp("ranks")
    torch.multiprocessing.spawn(work, args=(str(folder),), nprocs=WORLD)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(WORLD)]


@pytest.fixture
def both(done: list[dict[str, Any]]) -> Callable[[str], list[dict[str, Any]]]:
    def of(name: str) -> list[dict[str, Any]]:
        results = [rank[name] for rank in done]
        for result in results:
            assert isinstance(result, dict), result
        return results

    return of


def mean_of(loss: Callable[[Any, torch.Tensor], torch.Tensor]) -> dict[str, torch.Tensor | None]:
    """The gradients that one process gets of the mean over the ranks."""
    net = fresh()
    (sum(loss(net, batch(rank)) for rank in range(WORLD)) / WORLD).backward()
    return grads(net)


def agree(results: list[dict[str, Any]], want: dict[str, torch.Tensor | None]) -> None:
    for name, due in want.items():
        for result in results:
            got = result["grads"].get(name)
            if due is None:
                assert got is None or not got.any(), name
            else:
                assert got is not None, f"{name} has no gradient"
                assert torch.allclose(got, due, atol=1e-6), name


def to_b(net: Any, x: torch.Tensor) -> torch.Tensor:
    return net.steps(x)["b"]


def test_every_scenario_ran(done: list[dict[str, Any]]) -> None:
    for result in done:
        assert list(result) == list(SCENARIOS)


def test_ddp_gradients_are_reduced_behind_an_early_exit(both: Callable[..., Any]) -> None:
    results = both("ddp_early_exit")
    for rank, result in enumerate(results):
        assert torch.allclose(result["b"], to_b(fresh(), batch(rank)), atol=1e-6)
        assert result["ran"] == ["c", "c"], "the wrapper finished"
    agree(results, mean_of(lambda net, x: to_b(net, x).pow(2).sum()))


def test_ddp_gradients_are_reduced_where_its_last_submodule_is_captured(both: Callable[..., Any]) -> None:
    agree(both("ddp_last_submodule"), mean_of(lambda net, x: net(x).sum()))


def test_ddp_is_not_entered_where_only_its_input_is_wanted(both: Callable[..., Any]) -> None:
    results = both("ddp_input_of_the_wrapper")
    for rank, result in enumerate(results):
        assert torch.equal(result["got"], torch.tanh(batch(rank)))
        assert result["ran"] == ["a"], "the plain call's"
    agree(results, mean_of(lambda net, x: net(torch.tanh(x)).sum()))


def test_fsdp2_gradients_are_reduced_behind_an_early_exit(both: Callable[..., Any]) -> None:
    results = both("fsdp2_early_exit")
    for rank, result in enumerate(results):
        assert torch.allclose(result["b"], to_b(fresh(), batch(rank)), atol=1e-6)
    agree(results, mean_of(lambda net, x: to_b(net, x).pow(2).sum()))


def test_fsdp1_gradients_are_reduced_behind_an_early_exit(both: Callable[..., Any]) -> None:
    agree(both("fsdp1_early_exit"), mean_of(lambda net, x: net(x).pow(2).sum()))


def test_ddp_captured_inside_and_at_its_end(both: Callable[..., Any]) -> None:
    agree(both("ddp_two_captures"), mean_of(lambda net, x: net.steps(x)["a"].pow(2).sum() + net(x).sum()))


def test_ddp_around_a_part_finishes_and_the_rest_is_left(both: Callable[..., Any]) -> None:
    results = both("ddp_inside_a_model")
    agree(results, mean_of(lambda net, x: to_b(net, x).sum()))
    assert [r["ran"] for r in results] == [["c"], ["c"]]


def test_ddp_with_an_override_inside(both: Callable[..., Any]) -> None:
    agree(both("ddp_override"), mean_of(lambda net, x: net.c(torch.tanh(net.b(2 * x))).sum()))


def test_ddp_trains_on_after_a_run_that_raised(both: Callable[..., Any]) -> None:
    results = both("ddp_error")
    assert all(r["raised"] for r in results)
    agree(results, mean_of(lambda net, x: net(x).sum()))


def test_fsdp2_has_its_shards_back_after_the_run(both: Callable[..., Any]) -> None:
    assert all(r["sharded"] for r in both("fsdp2_early_exit"))


def test_fsdp1_computes_on_after_the_run(both: Callable[..., Any]) -> None:
    for rank, result in enumerate(both("fsdp1_early_exit")):
        assert torch.allclose(result["again"], fresh()(batch(rank)), atol=1e-6)
