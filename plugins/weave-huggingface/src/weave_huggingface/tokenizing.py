"""`tokenize`: a function target that makes a model's arguments from texts."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from weave import FunctionTarget, InputArgs

# A fast tokenizer keeps padding and truncation as a state of its own, set for each call, and raises "Already borrowed"
# where two threads meet there; so each is used by one thread at a time. (The work itself is parallel, in Rust.) By object
# and outside the target, so that two targets on one tokenizer share it, and targets pickle and copy.
_locks: weakref.WeakKeyDictionary[Any, threading.Lock] = weakref.WeakKeyDictionary()
_making = threading.Lock()


def tokenize(tokenizer: Any, *, name: str = "tokenize", **options: Any) -> FunctionTarget:
    """A function target: texts in, an `InputArgs(input_ids=..., attention_mask=..., ...)` out, made for `model.input("")`.

    It takes any number of texts and lists of texts, and makes one batch of them: `{"texts": ["one", "two"]}`, or several
    stitches. `[B, T]` tensors, padded where there are several texts.

    Args:
        tokenizer: a transformers tokenizer.
        name: the target's.
        options: for the tokenizer's call: `padding=`, `truncation=True`, `max_length=` ...
    """
    return FunctionTarget(name, Tokenize(tokenizer, options))


@dataclass(eq=False)
class Tokenize:
    """The function of such a target."""

    tokenizer: Any
    options: dict[str, Any]

    def __call__(self, *texts: Any) -> InputArgs:
        """The arguments of a model's call."""
        batch = list(_flat(texts))
        if not batch:
            raise ValueError("there is no text to tokenise")
        options = {"return_tensors": "pt", "padding": len(batch) > 1, **self.options}
        with _lock(self.tokenizer):
            return InputArgs(**self.tokenizer(batch, **options))


def _flat(texts: Any) -> Iterator[str]:
    for text in texts:
        if isinstance(text, str):
            yield text
        elif isinstance(text, list | tuple):
            yield from _flat(text)
        else:
            raise TypeError(f"tokenize takes texts and lists of texts, not a {type(text).__name__}")


def _lock(tokenizer: Any) -> threading.Lock:
    with _making:
        return _locks.setdefault(tokenizer, threading.Lock())
