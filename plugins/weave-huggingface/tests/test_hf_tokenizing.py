"""`tokenize`: texts in, a model's arguments out."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import anyio
import pytest
import torch
import transformers
from hf_families import BY_NAME, Family
from tokenizers import Tokenizer, models, pre_tokenizers
from weave_huggingface import HuggingFaceTarget, tokenize
from weave_huggingface import tokenizing as module

from weave import ConstantTarget, ExternalTarget, FunctionTarget, InputArgs
from weave.testing import TargetExample, TargetTypeSuite

EXT = ExternalTarget()
WORDS = ["[PAD]", "[UNK]", *["the", "cat", "sat", "on", "a", "mat", "and", "dog", "ran", "off", "with", "it"]]


def make(**options: Any) -> Any:
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        **{"tokenizer_object": backend, "pad_token": "[PAD]", "unk_token": "[UNK]", "model_max_length": 32, **options}
    )


def ids(*words: str) -> list[int]:
    return [WORDS.index(word) for word in words]


class TestTokenize(TargetTypeSuite):
    """As any target."""

    examples = [
        TargetExample(inputs={"": "the cat"}, outputs={"": [ids("the", "cat")]}),
        TargetExample(inputs={"": "a dog ran"}, outputs={"": [ids("a", "dog", "ran")]}),
        TargetExample(
            inputs={"": InputArgs("the cat sat", ["a dog"])},
            outputs={"": [ids("the", "cat", "sat"), ids("a", "dog", "[PAD]")]},
        ),
    ]
    failures = [
        TargetExample(inputs={"": 3}, raises=TypeError),
        TargetExample(inputs={"": InputArgs()}, raises=ValueError),
    ]
    refused = [("input", "x"), ("output", "x")]

    def target(self) -> FunctionTarget:
        return tokenize(make())

    def same(self, got: Any, expected: Any) -> bool:
        call_of_ids = isinstance(got, InputArgs) and not got.args
        return super().same(got.kwargs["input_ids"].tolist() if call_of_ids else got, expected)


def test_it_makes_the_arguments_of_a_call() -> None:
    call = tokenize(make()).function("the cat sat", ["a dog", ("it ran",)])
    assert call.args == []
    assert {"input_ids", "attention_mask"} <= set(call.kwargs)
    assert type(call.kwargs) is dict
    assert call.kwargs["input_ids"].tolist() == [
        ids("the", "cat", "sat"),
        ids("a", "dog", "[PAD]"),
        ids("it", "ran", "[PAD]"),
    ]
    assert call.kwargs["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0], [1, 1, 0]]


def test_options_are_the_tokenizers() -> None:
    target = tokenize(
        make(), name="words", padding="max_length", truncation=True, max_length=2, return_attention_mask=False
    )
    assert target.name == "words"
    call = target.function("the cat sat", "a")
    assert call.kwargs["input_ids"].tolist() == [ids("the", "cat"), ids("a", "[PAD]")]
    assert "attention_mask" not in call.kwargs


def test_one_text_needs_no_padding_token() -> None:
    """Which the tokenizers of GPT-2 and Llama don't have."""
    target = tokenize(make(pad_token=None))
    assert target.function("the cat").kwargs["input_ids"].tolist() == [ids("the", "cat")]
    with pytest.raises(ValueError, match="padding token"):
        target.function("the cat", "it")


def test_nothing_else_than_texts() -> None:
    for wrong in (3, None, b"the cat", {"text": "the"}):
        with pytest.raises(TypeError, match=type(wrong).__name__):
            tokenize(make()).function(["the", wrong])
    with pytest.raises(ValueError, match="no text"):
        tokenize(make()).function([])


@pytest.mark.parametrize("texts", ["the cat sat", ["the cat sat"], ["the cat", "a dog ran off", "it"]])
def test_texts_into_every_family(family: Family, tie: Any, texts: Any) -> None:
    tokenizer = make()
    t, words = HuggingFaceTarget("m", family.model), tokenize(tokenizer)
    stitched = tie(
        (EXT.input("texts"), words.input()),
        (words.output(), t.input("")),
        (t.output("", adapter="hf.logits"), EXT.output("y")),
    )
    batch = [texts] if isinstance(texts, str) else texts
    expected = family.model(**tokenizer(batch, return_tensors="pt", padding=True)).logits
    assert torch.equal(stitched({"texts": texts}, {})["y"], expected)


def test_its_result_goes_to_several(tie: Any) -> None:
    words, a, b = (
        tokenize(make()),
        FunctionTarget("a", lambda input_ids, **rest: input_ids.tolist()),
        FunctionTarget("b", lambda attention_mask, **rest: attention_mask.tolist()),
    )
    stitched = tie(
        (EXT.input("t"), words.input()),
        (words.output(), a.input()),
        (words.output(), b.input()),
        (a.output(), EXT.output("a")),
        (b.output(), EXT.output("b")),
    )
    out = stitched({"t": "the cat"}, {})
    assert (out["a"], out["b"]) == ([ids("the", "cat")], [[1, 1]])


def test_several_stitches_make_one_batch(tie: Any) -> None:
    words = tokenize(make())
    stitched = tie(
        (ConstantTarget("first", ["the cat"]).output(), words.input()),
        (EXT.input("more"), words.input()),
        (words.output(), EXT.input("call")),
    )
    out = stitched({"more": ["a dog", "it"]}, {})
    assert out.captured_inputs["call"].kwargs["input_ids"].tolist() == [
        ids("the", "cat"),
        ids("a", "dog"),
        ids("it", "[PAD]"),
    ]


def test_it_pickles_and_copies(tie: Any) -> None:
    stitched = tie((EXT.input("t"), tokenize(make()).input()))
    for again in (copy.deepcopy(stitched), pickle.loads(pickle.dumps(stitched))):
        again({"t": "the cat"}, {})


@pytest.mark.anyio
async def test_many_runs_share_a_tokenizer(tie: Any) -> None:
    """A fast tokenizer raises "Already borrowed" where two threads use it with different padding."""
    tokenizer = make()
    graphs = [
        tie((EXT.input("t"), w.input()), (w.output(), EXT.input("call")))
        for w in (tokenize(tokenizer), tokenize(tokenizer, padding="max_length", truncation=True, max_length=8))
    ]

    async def one(index: int) -> None:
        text = " ".join(WORDS[2 : 3 + index % 7])
        out = await graphs[index % 2].run({"t": text}, {})
        got = out.captured_inputs["call"].kwargs["input_ids"]
        assert got.shape == (1, 8 if index % 2 else 1 + index % 7)
        assert tokenizer.decode(got[0], skip_special_tokens=True) == text

    async with anyio.create_task_group() as group:
        for index in range(60):
            group.start_soon(one, index)


def test_a_tokenizer_is_used_by_one_thread_at_a_time() -> None:
    class Asks:
        """A tokenizer that looks whether it is guarded."""

        def __call__(self, batch: list[str], **options: Any) -> dict[str, Any]:
            return {"mine": module._lock(self).locked(), "others": module._lock(other).locked()}

    asks, other = Asks(), Asks()
    for target in (tokenize(asks), tokenize(asks, name="again")):
        assert target.function("x").kwargs == {"mine": True, "others": False}
    assert not module._lock(asks).locked()
    count = len(module._locks)
    del asks, target
    assert len(module._locks) == count - 1, "a lock lives as long as its tokenizer"


def test_an_error_of_the_tokenizers_leaves_it_usable() -> None:
    target = tokenize(make(pad_token=None))
    with pytest.raises(ValueError, match="padding token"):
        target.function("the cat", "it")
    assert target.function("it")


def test_a_bert_gets_its_token_types(tie: Any) -> None:
    tokenizer = make(model_input_names=["input_ids", "token_type_ids", "attention_mask"])
    words, t = tokenize(tokenizer), HuggingFaceTarget("m", BY_NAME["bert"].model)
    out = tie((EXT.input("t"), words.input()), (words.output(), t.input("")), (t.input(""), EXT.input("call")))(
        {"t": "it"}, {}
    )
    assert "token_type_ids" in out.captured_inputs["call"].kwargs
