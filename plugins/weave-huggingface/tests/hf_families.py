"""A tiny random model of each family, and where its roles are, written down by hand."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import nn

VOCABULARY, HIDDEN, INNER, LAYERS = 64, 32, 48, 4

_COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_GROUPED = {**_COMMON, "num_key_value_heads": 2, "head_dim": 8}
_GPT2: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "n_embd": HIDDEN,
    "n_inner": INNER,
    "n_layer": LAYERS,
    "n_head": 4,
    "n_positions": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


@dataclass(frozen=True)
class Family:
    """A family: how its model is made, and the paths (entered at, left at) of its roles; `{}` is a block's number."""

    name: str
    config: str
    options: dict[str, Any]
    auto: str
    embeddings: str
    blocks: str
    attention: tuple[str, str]
    mlp: tuple[str, str]
    final_norm: str | None
    lm_head: str

    def make(self, seed: int = 0) -> nn.Module:
        """A new model, in eval mode, its weights from a seed."""
        torch.manual_seed(seed)
        model: nn.Module = getattr(transformers, self.auto).from_config(self.new_config())
        with torch.no_grad():  # random models are nearly the identity: make every part of them matter
            for name, parameter in model.named_parameters():
                if parameter.ndim > 1:
                    parameter.mul_(8.0 if "emb" not in name and "wte" not in name else 4.0)
        return model.eval()

    def new_config(self) -> Any:
        """Its config; eager attention, so that masks are tensors and every attention computes its weights."""
        return getattr(transformers, self.config)(**self.options, attn_implementation="eager")

    @property
    def no_cache(self) -> dict[str, Any]:
        """What a call is told so that nothing is kept of it."""
        return {} if self.name == "bert" else {"use_cache": False}

    @property
    def model(self) -> nn.Module:
        """A shared one, for tests that leave it as it was."""
        return _shared(self.name)

    def ends(self, role: str) -> tuple[str, str] | None:
        """Where a role's ports are."""
        if role in ("embeddings", "final_norm", "lm_head"):
            path = getattr(self, role)
            return None if path is None else (path, path)
        _, number, *part = role.split(".")
        block = f"{self.blocks}.{number}"
        if not part:
            return block, block
        entered, left = getattr(self, part[0])
        return f"{block}.{entered}", f"{block}.{left}"


@functools.cache
def _shared(name: str) -> nn.Module:
    return BY_NAME[name].make()


def _decoder(name: str, config: str, **more: Any) -> Family:
    return Family(
        name=name,
        config=config,
        options={**_GROUPED, **more},
        auto="AutoModelForCausalLM",
        embeddings="model.embed_tokens",
        blocks="model.layers",
        attention=("self_attn", "self_attn"),
        mlp=("mlp", "mlp"),
        final_norm="model.norm",
        lm_head="lm_head",
    )


FAMILIES = (
    _decoder("llama", "LlamaConfig"),
    _decoder("qwen2", "Qwen2Config"),
    _decoder("qwen3", "Qwen3Config"),
    _decoder("mistral", "MistralConfig", sliding_window=4),
    Family(
        name="gpt2",
        config="GPT2Config",
        options=_GPT2,
        auto="AutoModelForCausalLM",
        embeddings="transformer.wte",
        blocks="transformer.h",
        attention=("attn", "attn"),
        mlp=("mlp", "mlp"),
        final_norm="transformer.ln_f",
        lm_head="lm_head",
    ),
    Family(
        name="bert",
        config="BertConfig",
        options=_COMMON,
        auto="AutoModelForMaskedLM",
        embeddings="bert.embeddings",
        blocks="bert.encoder.layer",
        attention=("attention.self", "attention.output.dense"),
        mlp=("intermediate", "output.dense"),
        final_norm=None,
        lm_head="cls.predictions.decoder",
    ),
    _decoder("gemma", "GemmaConfig"),
    _decoder("gemma2", "Gemma2Config", sliding_window=4),
    _decoder("gemma3", "Gemma3TextConfig", sliding_window=4),
)
BY_NAME = {family.name: family for family in FAMILIES}


def tokens(batch: int = 2, length: int = 7, seed: int = 1) -> torch.Tensor:
    """Token ids `[batch, length]`, none of them special."""
    return torch.randint(3, VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(seed))


class HalfMLP(nn.Module):
    """A student that stands where an MLP stood."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(HIDDEN, INNER // 2)
        self.down = nn.Linear(INNER // 2, HIDDEN)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[B, T, hidden]` to the same."""
        return self.down(torch.relu(self.up(x)))
