"""Loading models, and the target as any target."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
import weave_huggingface
from hf_families import BY_NAME, Family, tokens
from weave_huggingface import HuggingFaceTarget

from weave import ExternalTarget, InputArgs, ModuleTarget
from weave.testing import TargetExample, TargetTypeSuite

EXT = ExternalTarget()


@pytest.fixture
def saved(family: Family, tmp_path: Path) -> Path:
    family.model.save_pretrained(tmp_path)  # type: ignore[operator]
    return tmp_path


def test_a_saved_model_is_loaded_as_what_it_was(family: Family, saved: Path, tie: Any) -> None:
    for path in (saved, str(saved)):
        target = HuggingFaceTarget.from_pretrained("m", path, attn_implementation="eager", local_files_only=True)
        assert type(target) is HuggingFaceTarget
        assert target.name == "m"
        assert type(target.module) is type(family.model)
        assert not target.module.training
        stitched = tie((target.output("block.2.mlp"), EXT.output("x")), (target.output(""), EXT.output("y")))
        assert torch.equal(stitched({}, {}, tokens())["y"].logits, family.model(tokens()).logits)


def test_loaded_with_another_head_and_dtype(saved: Path, family: Family) -> None:
    target = HuggingFaceTarget.from_pretrained("m", saved, auto=transformers.AutoModel, dtype=torch.bfloat16)
    assert type(target.module) is type(family.model.get_submodule(family.blocks.partition(".")[0]))
    assert next(target.module.parameters()).dtype is torch.bfloat16
    assert "lm_head" not in target.roles()
    assert "block.3.mlp" in target.roles()


def test_from_a_config(family: Family) -> None:
    auto = getattr(transformers, family.auto)
    for how in (auto, type(family.model)):
        torch.manual_seed(4)
        target = HuggingFaceTarget.from_config("m", family.new_config(), auto=how)
        assert type(target.module) is type(family.model)
        assert not target.module.training
        torch.manual_seed(4)
        again = auto.from_config(family.new_config()).state_dict()
        assert all(torch.equal(again[key], value) for key, value in target.module.state_dict().items())


def test_from_a_config_that_names_its_class(saved: Path, family: Family) -> None:
    """As a saved one does. Weights are random nevertheless."""
    for config in (saved, transformers.AutoConfig.from_pretrained(saved)):
        target = HuggingFaceTarget.from_config("m", config, attn_implementation="eager", dtype=torch.float64)
        assert type(target.module) is type(family.model)
        assert next(target.module.parameters()).dtype is torch.float64
    torch.manual_seed(9)
    target = HuggingFaceTarget.from_config("m", saved)
    assert not torch.equal(target.module(tokens()).logits, family.model(tokens()).logits)


def test_a_config_that_names_no_class() -> None:
    with pytest.raises(ValueError, match=r"LlamaConfig names no class.*auto=transformers.AutoModelForCausalLM"):
        HuggingFaceTarget.from_config("m", BY_NAME["llama"].new_config())
    config = BY_NAME["llama"].new_config()
    config.architectures = ["SomebodysOwnLlama"]
    with pytest.raises(ValueError, match="names no class of transformers"):
        HuggingFaceTarget.from_config("m", config)


def test_blocks_are_said_where_a_model_is_loaded(tmp_path: Path) -> None:
    config = transformers.T5Config(
        vocab_size=64, d_model=32, d_ff=48, num_layers=2, num_heads=4, d_kv=8, decoder_start_token_id=0
    )
    made = HuggingFaceTarget.from_config("m", config, auto=transformers.AutoModelForSeq2SeqLM, blocks="encoder.block")
    assert made.output("block.1").output_name == "encoder.block.1"
    made.module.save_pretrained(tmp_path)  # type: ignore[operator]
    loaded = HuggingFaceTarget.from_pretrained("m", tmp_path, blocks="decoder.block")
    assert loaded.output("block.1").output_name == "decoder.block.1"


def test_a_subclass_loads_as_itself(tmp_path: Path) -> None:
    class Mine(HuggingFaceTarget):
        pass

    config = BY_NAME["gpt2"].new_config()
    assert type(Mine.from_config("m", config, auto=transformers.AutoModelForCausalLM)) is Mine


# --- as any target ---


@functools.cache
def _example(name: str, seed: int) -> TargetExample:
    """What torch's own hooks see. (Of roles that give a tensor in every release.)"""
    family, ids = BY_NAME[name], tokens(seed=seed)
    roles = ("embeddings", "block.1.mlp", "lm_head")
    seen: dict[str, Any] = {}
    handles = [
        family.model.get_submodule(family.ends(role)[1]).register_forward_hook(  # type: ignore[index]
            lambda module, args, output, role=role: seen.update({role: output})
        )
        for role in roles
    ]
    with torch.no_grad():
        family.model(ids, **family.no_cache)
    for handle in handles:
        handle.remove()
    captures = {"": InputArgs(ids, **family.no_cache)}
    return TargetExample(args=[ids], kwargs=family.no_cache, outputs=seen, captures=captures)


class _AnyFamily(TargetTypeSuite):
    """`examples` and so on are made when they are asked for: a model takes a moment."""

    plugin = weave_huggingface
    family: Family
    refused = [("input", "model.nothing"), ("output", "model.nothing")]
    failures = [TargetExample(inputs={"": InputArgs()}, raises=ValueError)]

    @property
    def examples(self) -> list[TargetExample]:
        first, second = _example(self.family.name, 1), _example(self.family.name, 2)
        other = second.outputs["lm_head"]
        return [
            first,
            second,
            TargetExample(
                args=first.args,
                kwargs=first.kwargs,
                replaces={"lm_head": other},
                outputs={**first.outputs, "lm_head": other},
            ),
            TargetExample(
                inputs={"": InputArgs(input_ids=second.args[0], **self.family.no_cache)},
                outputs={"lm_head": other},
            ),
        ]

    def target(self) -> ModuleTarget:
        return HuggingFaceTarget("model", self.family.make())


class TestLlama(_AnyFamily):
    family = BY_NAME["llama"]


class TestBERT(_AnyFamily):
    family = BY_NAME["bert"]
