"""The teacher on rank 0, its students on the others: `weave run-ranks 3 examples/distil_over_ranks.py`, or 2, or 1."""

import os

import torch
import torch.distributed as dist
from torch import nn

from weave import ExternalTarget, FunctionTarget, ModuleTarget, Needle

rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
if world > 1:
    dist.init_process_group("gloo")
torch.set_num_threads(1)
torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(32, 4, 128, batch_first=True)
teacher = nn.TransformerEncoder(layer, 4).requires_grad_(False)
students = {k: nn.Sequential(nn.Linear(32, 16), nn.GELU(), nn.Linear(16, 32)) for k in (1, 2)}  # of teacher's layers


def trains(student):
    optimizer = torch.optim.Adam(student.parameters(), 1e-2)

    def train(got, wanted):
        loss = nn.functional.mse_loss(got, wanted)
        loss.backward(), optimizer.step(), optimizer.zero_grad()
        return loss.item()

    return train


needle, caller, t = Needle(), ExternalTarget(), ModuleTarget("teacher", teacher)
needle.place(t, rank=0).stitch(caller.input("batch"), t.input(""))
for k, student in students.items():
    s, train = ModuleTarget(f"student {k}", student), FunctionTarget(f"train {k}", trains(student))
    needle.place(s, rank=k % world).place(train, rank=k % world)
    needle.stitch(t.input(f"layers.{k}"), s.input("", adapter="first"))
    needle.stitch(s.output(""), train.input()).stitch(t.output(f"layers.{k}"), train.input())
    needle.stitch(train.output(), caller.output(f"loss {k}"))
stitched = needle.knot()

# One run at a time, for each trains the students that the next one needs. Within a run they train side by side, while
# the teacher's forward goes on.
losses = []
for _ in range(50):
    out = stitched({"batch": torch.randn(8, 16, 32)}, {})  # rank 0's batch; the others' is not looked at
    if rank == 0:
        losses.append([out[f"loss {k}"] for k in students])
if rank == 0:
    for k, of_one in zip(students, zip(*losses, strict=True), strict=True):
        print(f"student {k}: loss {of_one[0]:.6f} -> {of_one[-1]:.6f}")
