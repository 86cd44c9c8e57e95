"""A model split over ranks and evaluated micro-batch by micro-batch: `weave run-ranks 2 examples/split_model.py`, or 4."""

import copy
import os

import torch
import torch.distributed as dist
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from weave import ExternalTarget, FunctionTarget, ModuleTarget, Needle, fake_tensor

rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
if world > 1:
    dist.init_process_group("gloo")
torch.set_grad_enabled(False)
torch.manual_seed(0)
sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_hidden_layers": 8}
model = LlamaForCausalLM(LlamaConfig(vocab_size=128, **sizes)).eval()
whole = copy.deepcopy(model)  # to compare with, and for nothing else


class Elsewhere(nn.Module):
    """Stands where another rank has a block. It sees fake tensors only."""

    def forward(self, hidden, **others):
        return hidden


blocks = model.model.layers
first = [r * len(blocks) // world for r in range(world + 1)]  # rank r has those from first[r] up to first[r + 1]
for i in range(len(blocks)):
    if not first[rank] <= i < first[rank + 1]:
        blocks[i] = Elsewhere()


def loss(out, labels):
    return nn.functional.cross_entropy(out.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


# The same graph on every rank; `place` says who computes what. Each calls its own copy of the model, of which it has
# its own blocks, and leaves it behind the last of them.
needle, caller, score = Needle(), ExternalTarget(), FunctionTarget("loss", loss)
parts = [ModuleTarget(f"part {r}", model) for r in range(world)]
for r, part in enumerate(parts):
    needle.place(part, rank=r)
    if r > 0:  # what the block before returned, in place of the fake; masks and positions stay as they are here
        name = f"model.layers.{first[r]}"
        needle.stitch(parts[r - 1].output(f"model.layers.{first[r] - 1}"), part.input(name, reducer="keep_kwargs"))
needle.stitch(parts[-1].output(""), score.input()).stitch(caller.input("labels"), score.input())
needle.stitch(score.output(), caller.output("loss")).place(score, rank=world - 1)
stitched = needle.knot()

lengths = [16, 9, 16, 5, 12, 16, 3, 8]
batches = [torch.randint(0, 128, (4, length)) for length in lengths]  # rank 0's matter; the others need only the shapes


def calls():
    for ids in batches:
        if rank == 0:
            yield {"labels": ids}, {}, ids
        else:
            yield {}, {}, fake_tensor(1, ids.shape[1], dtype=torch.long)


with stitched.stream(calls(), in_flight=2 * world) as results:
    losses = [out["loss"] if rank == 0 else None for out in results]
if rank == 0:
    same = all(torch.equal(got, loss(whole(ids), ids)) for got, ids in zip(losses, batches, strict=True))
    print(
        f"{world} ranks, {len(losses)} micro-batches, mean loss {sum(losses) / len(losses):.4f}; as in one process: {same}"
    )
