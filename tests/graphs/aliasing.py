"""The evaluator's book about tensors that several consumers hold.

Values mean what they were when they were delivered, so each consumer here gets twins of its own, whatever another one
does to its twins. What a consumer did change is noted: in a run, where the consumers share one object, that change must
be an error, unless the consumer happened to be the last.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .vocabulary import mapped, tensors


class Book:
    """Which tensors are one object in a run (`identity`), and which come from one (`family`).

    A twin that its consumer changed is another value from then on, so it gets a new identity; it stays in the family.
    """

    def __init__(self) -> None:
        self._identity: dict[int, int] = {}
        self._family: dict[int, int] = {}
        self._storages: dict[int, int] = {}
        self._kept: list[Tensor] = []

    def _enter(self, tensor: Tensor) -> int:
        key = id(tensor)
        if key not in self._identity:
            self._kept.append(tensor)
            self._identity[key] = self._family[key] = len(self._kept)
            owner = self._storages.setdefault(tensor.untyped_storage().data_ptr(), key)
            assert owner == key, "two views of one storage: the evaluator can't tell their changes apart"
        return key

    def identity(self, tensor: Tensor) -> int:
        return self._identity[self._enter(tensor)]

    def families(self, value: Any) -> frozenset[int]:
        return frozenset(self._family[self._enter(tensor)] for tensor in tensors(value))

    def twin(self, tensor: Tensor) -> Tensor:
        key = self._enter(tensor)
        twin = twin_of(tensor)
        twin_key = self._enter(twin)
        self._identity[twin_key], self._family[twin_key] = self._identity[key], self._family[key]
        return twin

    def now_another(self, tensor: Tensor) -> int:
        """Gives a changed twin an identity of its own; returns its family."""
        self._identity[id(tensor)] = -id(tensor)
        return self._family[id(tensor)]


def twin_of(tensor: Tensor) -> Tensor:
    """A clone that wants gradients where the tensor does, also while gradients are off."""
    if torch.is_grad_enabled() or not tensor.requires_grad:
        return tensor.clone()
    if tensor.is_leaf:
        return tensor.detach().clone().requires_grad_()
    with torch.enable_grad():
        return tensor.clone()


class Holding:
    """The twins that one consumer holds: one for each object, however many ways it came."""

    def __init__(self, book: Book | None) -> None:
        self._book = book
        self._twins: dict[int, Tensor] = {}
        self._versions: dict[int, int] = {}

    def receive(self, value: Any) -> Any:
        return value if self._book is None else mapped(value, self._receive)

    def _receive(self, tensor: Tensor) -> Tensor:
        assert self._book is not None
        identity = self._book.identity(tensor)
        if identity not in self._twins:
            self._twins[identity] = self._book.twin(tensor)
            self._versions[identity] = self._twins[identity]._version
        return self._twins[identity]

    def changed(self) -> set[int]:
        """The families of the twins that were changed in place since they were received."""
        if self._book is None:
            return set()
        return {
            self._book.now_another(twin)
            for identity, twin in self._twins.items()
            if twin._version != self._versions[identity]
        }
