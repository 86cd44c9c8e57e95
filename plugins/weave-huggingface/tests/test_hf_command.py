"""`weave hf-roles`, by weave's own command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
import weave_huggingface
from hf_families import BY_NAME, LAYERS, Family
from weave_huggingface import command

from weave.cli import main
from weave.plugins import PluginSet

README = (Path(__file__).parent.parent / "README.md").read_text()
Weave = Callable[..., tuple[int, str, str]]


@pytest.fixture
def weave(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Weave:
    """The command, with the plugin as if it were installed: its status, what it printed, what it complained of."""
    monkeypatch.setattr(PluginSet, "installed", lambda: PluginSet(weave_huggingface))

    def weave(*words: Any) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main([str(word) for word in words])
        return (status, *capsys.readouterr())

    return weave


def save(config: Any, folder: Path, **changes: Any) -> Path:
    """A folder with a config and no weights."""
    config.save_pretrained(folder)
    if changes:
        file = folder / "config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    return folder


def saved(family: Family, folder: Path, **changes: Any) -> Path:
    return save(family.new_config(), folder, **{"architectures": [type(family.model).__name__], **changes})


def test_json_has_every_role(weave: Weave, family: Family, tmp_path: Path) -> None:
    status, out, err = weave("hf-roles", saved(family, tmp_path), "--json")
    assert (status, err) == (0, "")
    said = json.loads(out)
    assert said["model"] == type(family.model).__name__
    assert said["blocks"] == family.blocks
    roles = ["embeddings", *(f"block.{i}{p}" for i in range(LAYERS) for p in ("", ".attention", ".mlp"))]
    due = {role: family.ends(role) for role in [*roles, "final_norm", "lm_head"]}
    assert {r["role"]: (r["input"], r["output"]) for r in said["roles"]} == {r: e for r, e in due.items() if e}
    assert set(said["missing"]) == {role for role, ends in due.items() if ends is None}


def test_the_table_is_the_readmes(weave: Weave, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (shown,) = re.findall(r"```console\n\$ weave (.*?)\n(.*?)```", README, re.DOTALL)
    words = shown[0].split()
    saved(BY_NAME["llama"], tmp_path / words[1])
    monkeypatch.chdir(tmp_path)
    assert weave(*words) == (0, shown[1], "")
    assert weave(words[0], f"{words[1]}/config.json") == (0, shown[1], "")


def test_what_a_model_has_not_is_said_with_the_reason(weave: Weave, tmp_path: Path) -> None:
    status, out, _ = weave("hf-roles", saved(BY_NAME["bert"], tmp_path))
    assert status == 0
    assert re.search(r"block\.\{0\.\.3}\.mlp +\S+\.\{0\.\.3}\.intermediate +\S+\.\{0\.\.3}\.output\.dense\n", out)
    assert out.splitlines()[-1].startswith("no final_norm: no norm stands behind its blocks")


def test_blocks_that_differ_are_told_apart(weave: Weave, tmp_path: Path) -> None:
    config = transformers.JambaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=14,
        num_attention_heads=4,
        num_key_value_heads=2,
        attn_layer_period=8,
        attn_layer_offset=2,
        architectures=["JambaForCausalLM"],
    )
    _, out, _ = weave("hf-roles", save(config, tmp_path))
    rows = [line.split() for line in out.splitlines()]
    assert ["block.2.attention", "model.layers.2.self_attn", "model.layers.2.self_attn"] in rows
    assert ["block.10.attention", "model.layers.10.self_attn", "model.layers.10.self_attn"] in rows
    assert ["block.{0..13}.mlp", *["model.layers.{0..13}.feed_forward"] * 2] in rows
    reasons = [line.partition(" convolves")[0] for line in out.splitlines() if line.startswith("no ")]
    assert reasons == [
        f"no block.{which}.attention: model.layers.{which}.mamba" for which in ("{0..1}", "{3..9}", "{11..13}")
    ]


def test_nothing_heavy_is_made(weave: Weave, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seventy billion parameters, without a byte of them."""
    config = transformers.LlamaConfig(
        hidden_size=8192, intermediate_size=28672, num_hidden_layers=80, num_attention_heads=64, num_key_value_heads=8
    )
    devices: set[str] = set()
    structure = command.Structure

    def seen(root: torch.nn.Module, blocks: str | None) -> Any:
        devices.update(p.device.type for p in root.parameters())
        return structure(root, blocks)

    monkeypatch.setattr(command, "Structure", seen)
    status, out, _ = weave("hf-roles", save(config, tmp_path), "--auto", "AutoModelForCausalLM")
    assert status == 0
    assert "model.layers.{0..79}.mlp" in out
    assert devices == {"meta"}


def test_which_blocks_are_meant(weave: Weave, tmp_path: Path) -> None:
    config = transformers.T5Config(
        vocab_size=64,
        d_model=32,
        d_ff=48,
        num_layers=2,
        num_heads=4,
        d_kv=8,
        architectures=["T5ForConditionalGeneration"],
    )
    save(config, tmp_path)
    status, out, err = weave("hf-roles", tmp_path)
    assert (status, out) == (2, "")
    assert "2 lists of blocks (encoder.block, decoder.block); say which with --blocks='decoder.block'" in err
    status, out, _ = weave("hf-roles", tmp_path, "--blocks", "encoder.block")
    assert status == 0
    assert "encoder.block.{0..1}.layer.1.DenseReluDense" in out
    status, _, err = weave("hf-roles", tmp_path, "--blocks=encoder")
    assert status == 2
    assert "--blocks='encoder' is no ModuleList" in err


def test_which_class_is_meant(weave: Weave, tmp_path: Path) -> None:
    saved(BY_NAME["llama"], tmp_path, architectures=None)
    status, out, err = weave("hf-roles", tmp_path)
    assert (status, out) == (2, "")
    assert "say which to build, such as --auto AutoModelForCausalLM" in err
    status, out, _ = weave("hf-roles", tmp_path, "--auto", "AutoModel")
    assert status == 0
    assert out.splitlines()[-1].endswith("such as with --auto=AutoModelForCausalLM")
    status, _, err = weave("hf-roles", tmp_path, "--auto", "AutoModelForCasualLM")
    assert status == 2
    assert "no class 'AutoModelForCasualLM'; did you mean AutoModelForCausalLM" in err


def test_a_model_without_such_blocks(weave: Weave, tmp_path: Path) -> None:
    config = transformers.ResNetConfig(architectures=["ResNetForImageClassification"])
    status, out, err = weave("hf-roles", save(config, tmp_path))
    assert (status, out) == (2, "")
    assert "ResNetForImageClassification: it has no list of blocks that are called with an attention mask" in err
    assert "every submodule path is a port" in err


def test_where_nothing_is(weave: Weave, tmp_path: Path) -> None:
    status, out, err = weave("hf-roles", tmp_path / "nope")
    assert (status, out) == (2, "")
    assert "nope': give a model's folder, or its config.json" in err
    assert "hf download NAME config.json" in err
    status, _, err = weave("hf-roles", tmp_path)
    assert status == 2
    assert "there is no config.json in" in err


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "is no config of transformers: Expecting"),
        ("[]", "it says no model_type"),
        ('{"hidden_size": 3}', "it says no model_type"),
        ('{"model_type": "nobodys"}', "does not know models of type 'nobodys': a newer one may"),
        ('{"model_type": "llama", "architectures": ["LlamaModel"], "num_attention_heads": 0}', "can't read"),
        ('{"model_type": "llama", "architectures": ["LlamaTokenizer"]}', "can't build LlamaTokenizer from"),
    ],
)
def test_what_can_not_be_read(weave: Weave, tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "config.json").write_text(text)
    status, out, err = weave("hf-roles", tmp_path)
    assert (status, out) == (2, "")
    assert why in err
    assert err.startswith("weave hf-roles: ")
    assert str(tmp_path) in err or "nobodys" in err


def test_the_help_needs_no_transformers(weave: Weave) -> None:
    with pytest.raises(SystemExit):
        weave("hf-roles", "--help")
    program = (
        "import sys\nfrom weave_huggingface import weave_commands\nimport argparse\n"
        "weave_commands()[0].add_arguments(argparse.ArgumentParser())\nprint('transformers' in sys.modules)\n"
    )
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], env=paths, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
