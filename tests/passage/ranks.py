"""What two real processes do, for `test_ranks`. Each scenario returns plain data; tests compare it here and there."""

from __future__ import annotations

import datetime
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from .nets import Chain
from .stitching import ports

WORLD = 2
Scenario = Callable[[int], dict[str, Any]]


def batch(rank: int) -> torch.Tensor:
    """Each rank has rows of its own."""
    return torch.arange(12.0).reshape(4, 3)[2 * rank : 2 * rank + 2] / 7 - 0.5


def fresh() -> Chain:
    """The same weights everywhere."""
    torch.manual_seed(5)
    return Chain()


def grads(module: nn.Module) -> dict[str, torch.Tensor | None]:
    return {n.removeprefix("module."): None if p.grad is None else p.grad.clone() for n, p in module.named_parameters()}


def frozen_end() -> Chain:
    """DDP waits for a gradient of every parameter that needs one, with or without weave; here `c` needs none."""
    net = fresh()
    net.c.requires_grad_(False)
    return net


def ddp_early_exit(rank: int) -> dict[str, Any]:
    """Only `b` is wanted. Left there, DDP would never prepare its reducer; a second step would raise."""
    ran: list[str] = []
    net = nn.parallel.DistributedDataParallel(frozen_end())
    net.module.c.register_forward_hook(lambda m, a, out: ran.append("c"))
    stitched = ports(net, ["module.b"])
    for _ in range(2):
        net.zero_grad()
        b = stitched({"x": batch(rank)}, {})["module.b"]
        b.pow(2).sum().backward()
    return {"grads": grads(net), "b": b.detach(), "ran": ran}


def ddp_last_submodule(rank: int) -> dict[str, Any]:
    """All of the inner forward is wanted, and nothing of the wrapper's own work behind it."""
    net = nn.parallel.DistributedDataParallel(fresh())
    stitched = ports(net, ["module.c"])
    for _ in range(2):
        net.zero_grad()
        stitched({"x": batch(rank)}, {})["module.c"].sum().backward()
    return {"grads": grads(net)}


def ddp_two_captures(rank: int) -> dict[str, Any]:
    """Inside and the wrapper's own output, trained on both."""
    net = nn.parallel.DistributedDataParallel(fresh())
    got = ports(net, ["module.a", ""])({"x": batch(rank)}, {})
    (got["module.a"].pow(2).sum() + got[""].sum()).backward()
    return {"grads": grads(net)}


def ddp_inside_a_model(rank: int) -> dict[str, Any]:
    """DDP around a part of the model: the part finishes, what is behind it does not run."""
    ran: list[str] = []
    net = nn.Sequential(nn.parallel.DistributedDataParallel(frozen_end()), nn.Tanh())
    net[0].module.c.register_forward_hook(lambda m, a, out: ran.append("c"))
    net[1].register_forward_hook(lambda m, a, out: ran.append("tanh"))
    ports(net, ["0.module.b"])({"x": batch(rank)}, {})["0.module.b"].sum().backward()
    return {"grads": grads(net[0]), "ran": ran}


def ddp_input_of_the_wrapper(rank: int) -> dict[str, Any]:
    """Only what DDP is called with is wanted: it is left before DDP starts, so there is nothing to finish."""
    ran: list[str] = []
    net = nn.Sequential(nn.Tanh(), nn.parallel.DistributedDataParallel(fresh()))
    net[1].module.a.register_forward_hook(lambda m, a, out: ran.append("a"))
    got = ports(net, [], ["1"])({"x": batch(rank)}, {})["1"].args[0]
    net(batch(rank)).sum().backward()
    return {"grads": grads(net[1]), "got": got.detach(), "ran": ran}


def ddp_override(rank: int) -> dict[str, Any]:
    """A stitch into a DDP module, from a function of this rank."""
    net = nn.parallel.DistributedDataParallel(fresh(), find_unused_parameters=True)
    stitched = ports(net, ["module.c"], new_inputs=["module.b"])
    v = batch(rank) * 2
    stitched({"x": batch(rank), "module.b": v}, {})["module.c"].sum().backward()
    return {"grads": grads(net)}


def ddp_error(rank: int) -> dict[str, Any]:
    """A run that raises inside DDP leaves a module that trains on."""
    net = nn.parallel.DistributedDataParallel(fresh())
    handle = net.module.b.register_forward_pre_hook(lambda m, a: 1 / 0)
    stitched = ports(net, ["module.b", ""])
    try:
        stitched({"x": batch(rank)}, {})
    except ZeroDivisionError:
        raised = True
    handle.remove()
    stitched({"x": batch(rank)}, {})[""].sum().backward()
    return {"grads": grads(net), "raised": raised}


def fsdp2_early_exit(rank: int) -> dict[str, Any]:
    """FSDP2 gathers a module's parameters for its forward and frees them behind it: left early, they would stay."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor

    net = fresh()
    for part in (net.b, net):
        fully_shard(part)
    stitched = ports(net, ["b"])
    for _ in range(2):
        net.zero_grad()
        b = stitched({"x": batch(rank)}, {})["b"]
        b.pow(2).sum().backward()
    full = {n: p.grad.full_tensor() for n, p in net.named_parameters() if isinstance(p.grad, DTensor)}
    sharded = all(isinstance(p, DTensor) for p in net.parameters())
    return {"grads": full, "b": b.detach(), "sharded": sharded}


def fsdp1_early_exit(rank: int) -> dict[str, Any]:
    """FSDP1: the flat parameter is gathered and freed likewise."""
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

    net = FullyShardedDataParallel(
        fresh(), device_id=torch.device("cpu"), sharding_strategy=ShardingStrategy.FULL_SHARD, use_orig_params=True
    )
    name = "_fsdp_wrapped_module.c"
    for _ in range(2):
        net.zero_grad()
        c = ports(net, [name])({"x": batch(rank)}, {})[name]
        c.pow(2).sum().backward()
    with FullyShardedDataParallel.summon_full_params(net, with_grads=True):
        full = {
            n.replace("_fsdp_wrapped_module.", ""): p.grad.clone()
            for n, p in net.named_parameters()
            if p.grad is not None
        }
    again = net(batch(rank)).detach()
    return {"grads": full, "again": again}


SCENARIOS: dict[str, Scenario] = {
    f.__name__: f
    for f in (
        ddp_early_exit,
        ddp_last_submodule,
        ddp_two_captures,
        ddp_input_of_the_wrapper,
        ddp_inside_a_model,
        ddp_override,
        ddp_error,
        fsdp2_early_exit,
        fsdp1_early_exit,
    )
}


def work(rank: int, folder: str) -> None:
    """A process's life: every scenario in turn, results and tracebacks into a file."""
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=WORLD,
        timeout=datetime.timedelta(seconds=60),
    )
    results: dict[str, Any] = {}
    for name, scenario in SCENARIOS.items():
        try:
            results[name] = scenario(rank)
        except Exception:
            results[name] = traceback.format_exc()
            if rank == 0:
                print(results[name], flush=True)
        dist.barrier()
    torch.save(results, Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()
