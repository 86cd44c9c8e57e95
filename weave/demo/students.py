"""The students: each feed-forward block of the teacher, cut to fewer hidden units.

Which units stay is decided by norms alone, without a look at data (Li et al., "Pruning Filters for Efficient
ConvNets", 2017, rank filters so): unit ``j`` adds ``gelu(up[j] . x + b[j]) * down[:, j]`` to the block's output, and
the size of that is bounded by ``|up[j]| |x| |down[:, j]|`` but for the bias. So the product of the two norms ranks the
units; either norm alone would keep units that are easily excited but say little, or the other way round.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from weave.demo.encoder import FeedForward, SentenceEncoder

UNITS = 384


@torch.no_grad()
def neuron_norms(block: FeedForward) -> Tensor:
    """What each hidden unit of ``block`` may contribute: ``[units]``, input norm times output norm."""
    norms: Tensor = block.up.weight.norm(dim=1) * block.down.weight.norm(dim=0)
    return norms


@torch.no_grad()
def cut(block: FeedForward, units: int) -> FeedForward:
    """A copy of ``block`` that keeps the ``units`` hidden units with the largest norms, in their old order, trainable.

    Where it keeps them all it computes what ``block`` computes. Raises :class:`ValueError` where ``block`` has fewer.
    """
    if not 1 <= units <= block.units:
        raise ValueError(f"can't keep {units} of {block.units} hidden units: choose 1 to {block.units}")
    # A stable sort, so that equal norms can't give another student on another machine.
    kept = torch.argsort(neuron_norms(block), descending=True, stable=True)[:units].sort().values
    student = FeedForward(block.up.in_features, units)
    student.up.weight.copy_(block.up.weight[kept])
    student.up.bias.copy_(block.up.bias[kept])
    student.down.weight.copy_(block.down.weight[:, kept])
    student.down.bias.copy_(block.down.bias)
    return student


def cut_all(teacher: SentenceEncoder, units: int = UNITS) -> nn.ModuleList:
    """A student for each of the teacher's feed-forward blocks, in their order."""
    return nn.ModuleList(cut(teacher.block(index), units) for index in range(len(teacher.layers)))


def parameters(module: nn.Module) -> int:
    """How many numbers the module's parameters hold."""
    return sum(parameter.numel() for parameter in module.parameters())
