"""Roles are found in a model's structure: the right submodules in every family, and a refusal where they can't be told."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
import transformers
from hf_families import BY_NAME, LAYERS, Family, tokens
from torch import nn
from weave_huggingface import Ends, HuggingFaceTarget

from weave import ExternalTarget, KnotException, ModuleTarget, UnknownPortException

EXT = ExternalTarget()
ROLES = (
    "embeddings",
    *(f"block.{i}{part}" for i in range(LAYERS) for part in ("", ".attention", ".mlp")),
    "final_norm",
    "lm_head",
)


@pytest.mark.parametrize("role", ROLES)
def test_a_role_is_where_it_should_be(family: Family, role: str) -> None:
    target, ends = HuggingFaceTarget("m", family.model), family.ends(role)
    if ends is None:
        with pytest.raises(UnknownPortException, match="no norm stands behind its blocks"):
            target.output(role)
        return
    entered, left = ends
    assert target.input(role).input_name == entered
    assert target.output(role).output_name == left
    # What was written down by hand is there.
    assert family.model.get_submodule(entered) is not None
    assert family.model.get_submodule(left) is not None


def test_roles_lists_them_all_in_order(family: Family) -> None:
    wanted = {role: Ends(*ends) for role in ROLES if (ends := family.ends(role)) is not None}
    found = HuggingFaceTarget("m", family.model).roles()
    assert found == wanted
    assert list(found) == list(wanted)


def test_the_roles_of_a_model_without_its_head(family: Family) -> None:
    """What the head's class wraps has the same roles, a level higher up."""
    prefix = family.blocks.partition(".")[0]
    base = family.model.get_submodule(prefix)
    found = HuggingFaceTarget("m", base).roles()
    expected = {
        role: Ends(*(path.removeprefix(f"{prefix}.") for path in ends))
        for role in ROLES
        if role != "lm_head" and (ends := family.ends(role)) is not None
    }
    assert found == expected
    with pytest.raises(UnknownPortException, match=r"no head over the vocabulary.*AutoModelForCausalLM"):
        HuggingFaceTarget("m", base).output("lm_head")


def test_plain_paths_are_ports_too(family: Family) -> None:
    target = HuggingFaceTarget("m", family.model)
    for path in ("", family.blocks + ".1", f"{family.blocks}.2.{family.mlp[1]}"):
        assert target.input(path).input_name == path
        assert target.output(path, call="last").output_name == path


def test_everything_else_of_a_port_goes_on_to_it() -> None:
    target = HuggingFaceTarget("m", BY_NAME["llama"].model)
    port = target.output("block.1", "hf.hidden", "hf.hidden", call=2)
    assert (port.output_adapter, port.reducer, port.call) == ("hf.hidden", "hf.hidden", 2)
    into = target.input("block.1", adapter="clone", reducer="keep_kwargs", call=0)
    assert (into.input_adapter, into.reducer, into.call) == ("clone", "keep_kwargs", 0)
    assert port.target is into.target is target


class Renamed(nn.Module):
    """A block as no family of transformers writes it: other names, other order, other classes."""

    class Mixing(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.everything = nn.Linear(width, 3 * width)
            self.back = nn.Linear(width, width)

        def forward(self, x: torch.Tensor, attention_mask: Any = None) -> torch.Tensor:
            return self.back(self.everything(x)[..., : x.shape[-1]])

    def __init__(self, width: int) -> None:
        super().__init__()
        self.grow = nn.Linear(width, 5 * width)
        self.shrink = nn.Linear(5 * width, width)
        self.before = nn.LayerNorm(width)
        self.mix = Renamed.Mixing(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.mix(self.before(x))
        return x + self.shrink(torch.relu(self.grow(x)))


class Config:
    hidden_size = 6


class Homemade(nn.Module):
    """A model that only behaves like one of transformers."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.config = Config()
        self.last = nn.LayerNorm(width)
        self.scale_of_emb = nn.LayerNorm(width)
        self.words = nn.Embedding(9, width)
        self.rows = nn.ModuleList(Renamed(width) for _ in range(2))
        self.out = nn.Linear(width, 9)

    def get_input_embeddings(self) -> nn.Module:
        return self.words

    def get_output_embeddings(self) -> nn.Module:
        return self.out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.scale_of_emb(self.words(x))
        for row in self.rows:
            x = row(x)
        return self.out(self.last(x))


def test_neither_names_nor_classes_matter() -> None:
    assert HuggingFaceTarget("m", Homemade()).roles() == {
        "embeddings": Ends("words", "words"),
        "block.0": Ends("rows.0", "rows.0"),
        "block.0.attention": Ends("rows.0.mix", "rows.0.mix"),
        "block.0.mlp": Ends("rows.0.grow", "rows.0.shrink"),
        "block.1": Ends("rows.1", "rows.1"),
        "block.1.attention": Ends("rows.1.mix", "rows.1.mix"),
        "block.1.mlp": Ends("rows.1.grow", "rows.1.shrink"),
        "final_norm": Ends("last", "last"),
        "lm_head": Ends("out", "out"),
    }


def with_parts(**parts: nn.Module) -> HuggingFaceTarget:
    """A model whose block 1 has these parts instead of its MLP."""
    model = Homemade()
    block = model.rows[1]
    del block.grow, block.shrink
    for name, part in parts.items():
        setattr(block, name, part)
    return HuggingFaceTarget("m", model)


def test_an_mlp_in_two_parts() -> None:
    """The second takes what the first gives, or half of it where the first is gated."""
    plain = with_parts(a=nn.Linear(6, 9), b=nn.Linear(9, 6))
    assert plain.roles()["block.1.mlp"] == Ends("rows.1.a", "rows.1.b")
    gated = with_parts(a=nn.Linear(6, 18), b=nn.Linear(9, 6))
    assert gated.roles()["block.1.mlp"] == Ends("rows.1.a", "rows.1.b")
    for a, b in (
        (nn.Linear(6, 9), nn.Linear(8, 6)),
        (nn.Linear(6, 9), nn.Linear(9, 5)),
        (nn.Linear(6, 27), nn.Linear(9, 6)),
    ):
        with pytest.raises(UnknownPortException, match=r"more than one part of rows.1 .*rows.1.a, rows.1.b"):
            with_parts(a=a, b=b).output("block.1.mlp")


def test_an_mlp_beside_other_matrices() -> None:
    """It is the part that has several, and an activation. (Gemma 3n has such company for its MLPs.)"""
    mlp = nn.Sequential(nn.Linear(6, 9), nn.GELU(), nn.Linear(9, 6))
    linear = nn.Sequential(nn.Linear(6, 2), nn.Dropout(), nn.Linear(2, 6))
    target = with_parts(a=nn.Linear(6, 6), mlp=mlp, b=linear)
    assert target.output("block.1.mlp").output_name == "rows.1.mlp"
    with pytest.raises(UnknownPortException, match=r"more than one part of rows.1 .*rows.1.mlp, rows.1.c"):
        with_parts(mlp=mlp, b=linear, c=copy.deepcopy(mlp)).output("block.1.mlp")
    with pytest.raises(UnknownPortException, match=r"no part of rows.1 \(Renamed\) has matrices and is no attention"):
        with_parts(norm=nn.LayerNorm(6)).output("block.1.mlp")


def test_inside_a_wrapper() -> None:
    class Wrapper(nn.Module):
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.module = module

    family = BY_NAME["bert"]
    wrapped = HuggingFaceTarget("m", Wrapper(family.model))
    assert wrapped.output("block.2.mlp").output_name == "module.bert.encoder.layer.2.output.dense"
    assert wrapped.output("embeddings").output_name == "module.bert.embeddings"
    assert wrapped.output("lm_head").output_name == "module.cls.predictions.decoder"
    compiled = HuggingFaceTarget("m", torch.compile(BY_NAME["llama"].model, backend="eager"))
    assert compiled.output("block.2.mlp").output_name == "_orig_mod.model.layers.2.mlp"
    assert compiled.output("final_norm").output_name == "_orig_mod.model.norm"
    beside = HuggingFaceTarget("m", nn.ModuleDict({"a": family.model, "b": Homemade()}), blocks="b.rows")
    assert beside.output("block.1").output_name == "b.rows.1"
    with pytest.raises(UnknownPortException, match="no norm stands"):
        beside.output("final_norm")  # the model is "a"; it ends, and does not look further


def test_a_language_model_beside_a_longer_vision_tower() -> None:
    """The larger Gemmas 3 are such: the blocks meant are those behind the token embedding."""
    text = BY_NAME["gemma3"].new_config()
    vision = transformers.SiglipVisionConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=7, num_attention_heads=2, image_size=8, patch_size=4
    )
    config = transformers.Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4)
    with torch.device("meta"):
        model = transformers.Gemma3ForConditionalGeneration(config)
    roles = HuggingFaceTarget("m", model).roles()
    assert model.get_submodule(roles["block.3"].output) is model.get_decoder().layers[3]
    assert "block.4" not in roles
    assert model.get_submodule(roles["block.3.mlp"].output) is model.get_decoder().layers[3].mlp
    assert model.get_submodule(roles["final_norm"].output) is model.get_decoder().norm
    assert model.get_submodule(roles["embeddings"].output) is model.get_input_embeddings()
    assert model.get_submodule(roles["lm_head"].output) is model.lm_head


# --- what can't be told is refused ---


def t5() -> nn.Module:
    config = transformers.T5Config(
        vocab_size=64, d_model=32, d_ff=48, num_layers=2, num_heads=4, d_kv=8, decoder_start_token_id=0
    )
    return transformers.T5ForConditionalGeneration(config)


def test_two_stacks_are_refused_until_one_is_named() -> None:
    model = t5()
    with pytest.raises(
        UnknownPortException, match=r"2 lists of blocks \(encoder.block, decoder.block\).*blocks='decoder"
    ):
        HuggingFaceTarget("m", model).output("block.1")
    encoder = HuggingFaceTarget("m", model, blocks="encoder.block")
    assert encoder.output("block.1.mlp").output_name == "encoder.block.1.layer.1.DenseReluDense"
    assert encoder.input("block.1.attention").input_name == "encoder.block.1.layer.0.SelfAttention"
    assert encoder.output("embeddings").output_name == "encoder.embed_tokens"
    assert encoder.output("final_norm").output_name == "encoder.final_layer_norm"
    decoder = HuggingFaceTarget("m", model, blocks="decoder.block")
    with pytest.raises(UnknownPortException, match=r"more than one part of decoder.block.0 .*layer.0, .*layer.1"):
        decoder.output("block.0.attention")  # its own, or that to the encoder?
    with pytest.raises(UnknownPortException, match="blocks='decoder' is no ModuleList"):
        HuggingFaceTarget("m", model, blocks="decoder").output("block.0")


def test_what_is_no_attention_is_not_called_one() -> None:
    """ALBERT's blocks are groups of layers; Jamba's are state-space mixers here and there."""
    albert = transformers.AlbertConfig(
        vocab_size=64, embedding_size=16, hidden_size=32, intermediate_size=48, num_attention_heads=4
    )
    target = HuggingFaceTarget("m", transformers.AlbertModel(albert))
    with pytest.raises(UnknownPortException, match="is more than an attention"):
        target.output("block.0.attention")
    with pytest.raises(UnknownPortException, match="has matrices and is no attention"):
        target.output("block.0.mlp")
    mamba = transformers.MambaConfig(vocab_size=64, hidden_size=32, num_hidden_layers=1, state_size=4)
    with pytest.raises(UnknownPortException, match="convolves"):
        HuggingFaceTarget("m", transformers.MambaForCausalLM(mamba)).output("block.0.attention")


def test_a_head_with_a_norm_has_no_final_norm() -> None:
    """DistilBERT's vocab_layer_norm stands beside the base model, and not behind the blocks."""
    config = transformers.DistilBertConfig(vocab_size=64, dim=32, hidden_dim=48, n_layers=1, n_heads=4)
    with pytest.raises(UnknownPortException, match="no norm stands"):
        HuggingFaceTarget("m", transformers.DistilBertForMaskedLM(config)).output("final_norm")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("blok.3.mpl", "block.3.mlp"),
        ("block.3.attn", "block.3.attention"),
        ("layers.3.mlp", "model.layers.3.mlp"),
        ("final_nrom", "final_norm"),
        ("block.mlp", "block.0.mlp"),
        ("block.1.mlp.gate", "block.1.mlp"),
        ("lm-head", "lm_head"),
    ],
)
def test_an_unknown_name_says_what_is_near(name: str, near: str) -> None:
    target = HuggingFaceTarget("teacher", BY_NAME["llama"].model)
    for port in (target.input, target.output):
        with pytest.raises(UnknownPortException) as raised:
            port(name)
        error = raised.value
        assert near in error.nearest
        assert repr(near) in str(error)
        assert error.node == "teacher"
        assert error.port in str(error)
        assert repr(name) in error.port
    assert isinstance(error, KnotException)


def test_a_block_that_is_not_there() -> None:
    target = HuggingFaceTarget("m", BY_NAME["gpt2"].model)
    with pytest.raises(UnknownPortException, match=r"transformer.h\) are block.0 to block.3"):
        target.output("block.4.mlp")
    with pytest.raises(UnknownPortException):
        target.output("block.-1")


def test_something_else_than_a_model() -> None:
    target = HuggingFaceTarget("m", nn.Sequential(nn.Linear(2, 2)))
    assert target.output("0").output_name == "0"
    assert target.roles() == {}
    with pytest.raises(UnknownPortException, match="no transformers model in it"):
        target.output("block.0")


# --- it is a ModuleTarget ---


def test_it_lists_ports_copies_and_pickles() -> None:
    target = HuggingFaceTarget("m", BY_NAME["llama"].make(), blocks="model.layers")
    assert isinstance(target, ModuleTarget)
    assert {row.name for row in target.ports()} >= {"", "model.layers.3.mlp", "lm_head"}
    for again in (copy.deepcopy(target), pickle.loads(pickle.dumps(target))):
        assert (again.name, again.blocks) == ("m", "model.layers")
        assert again.module is not target.module
        assert again.roles() == target.roles()


def test_a_model_whose_parts_were_exchanged(tie: Any) -> None:
    """Roles are looked up in the model as it is when a port is made."""
    model = BY_NAME["llama"].make()
    target = HuggingFaceTarget("m", model)
    assert target.output("block.3").output_name == "model.layers.3"
    model.model.layers = model.model.layers[:2]
    model.config.num_hidden_layers = 2
    with pytest.raises(UnknownPortException, match=r"block.0 to block.1"):
        target.output("block.3")
    out = tie((target.output("block.1"), EXT.output("x")))({}, {}, tokens())["x"]
    assert out.shape == (2, 7, 32)
