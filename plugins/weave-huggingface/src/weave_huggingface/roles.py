"""Where the roles are in a model: told from its structure, never from a list of class names.

What is looked at:

- The *blocks* are the `ModuleList` whose items have a part that is called with an attention mask. Where a model has several
  such lists (a vision tower beside a language model), the one nearest to the token embedding counts; two equally near
  ones are refused.
- The *attention* of a block is that part, unless it convolves: then it is a state-space mixer or a linear attention.
- The *mlp* is the part of a block that holds matrices and is no attention; where two parts follow each other, of widths
  that fit (hidden to inner, inner to hidden), both are it: it is entered at the first and left at the second.
- The *embeddings* are the model's token embedding, or the largest module around it without the blocks; the *final norm* is
  the norm that stands beside the blocks, or beside what holds them in the base model; the *lm_head* is what the model says.

`attention` and `mlp` mean the same in every family: without the residual connection and without the norms around them.
BERT's modules are cut otherwise (its `output` is a matrix, the residual and a norm), so there the two ends are different
submodules: `block.3.mlp` is entered where `intermediate` is called, and left where `output.dense` returns.

Of names, two kinds are looked at: `attention_mask` (or `mask`) among a forward's parameters, which is how transformers'
modules are called, and "emb" in that of a norm beside the blocks, which then stands in front of them, not behind.

Rejected: tables by class or by `model_type` (out of date with every release, and blind to remote code); the names of parts
(`self_attn`, `attn`, `attention`: the same treadmill); a run on fake tensors that watches what calls what (it would need
arguments that the model takes, and a model may be quantised, sharded or compiled).
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from torch import nn

_BLOCK = re.compile(r"block\.(\d+)(?:\.(attention|mlp))?")
SINGLE = ("embeddings", "final_norm", "lm_head")
PARTS = ("", ".attention", ".mlp")  # of a block, behind its number


class Ends(NamedTuple):
    """The submodule paths of a role: where its input port is and where its output port is. Mostly the same."""

    input: str
    output: str


class Missing(LookupError):
    """A role that this model hasn't, or that can't be told; the message says why."""


class _Part(NamedTuple):
    path: str
    module: nn.Module


class Structure:
    """What of `root` plays which role. `blocks` names the list of blocks where it can't be told."""

    def __init__(self, root: nn.Module, blocks: str | None = None) -> None:
        # All names of a tied module: the one nearest to the blocks is wanted below.
        self.paths: dict[str, nn.Module] = dict(root.named_modules(remove_duplicate=False))
        self.given = blocks

    @functools.cached_property
    def model(self) -> _Part:
        """The transformers model: the root, or what a wrapper (DDP, `torch.compile`) holds."""
        for path, module in self.paths.items():
            if hasattr(module, "get_input_embeddings") and hasattr(module, "config"):
                return _Part(path, module)
        raise Missing("there is no transformers model in it")

    @functools.cached_property
    def hidden(self) -> int | None:
        """The width of the residual stream, where the config says it."""
        config: Any = self.model.module.config
        text = config.get_text_config() if hasattr(config, "get_text_config") else config
        width = getattr(text, "hidden_size", None)
        return width if isinstance(width, int) else None

    @functools.cached_property
    def blocks(self) -> str:
        """The path of the list of blocks."""
        if self.given is not None:
            if not isinstance(self.paths.get(self.given), nn.ModuleList):
                raise Missing(f"blocks={self.given!r} is no ModuleList in it")
            return self.given
        embeddings = self._names_of(_said(self.model.module, "get_input_embeddings"))
        stacks = [p for p, m in self.paths.items() if isinstance(m, nn.ModuleList) and any(map(_mixers, _items(p, m)))]
        stacks = [p for p in stacks if not any(p.startswith(outer + ".") for outer in stacks)]  # T5's blocks are lists
        if not stacks:
            raise Missing("it has no list of blocks that are called with an attention mask")
        near = {p: max((_shared(p, e) for e in embeddings), default=0) for p in stacks}
        nearest = [p for p in stacks if near[p] == max(near.values())]
        if len(nearest) > 1:
            raise Missing(
                f"it has {len(nearest)} lists of blocks ({', '.join(nearest)}); say which with blocks={nearest[-1]!r}"
            )
        return nearest[0]

    @property
    def count(self) -> int:
        """How many blocks there are."""
        return len(self.paths[self.blocks])  # type: ignore[arg-type]

    def find(self, role: str) -> Ends | None:
        """Where a role is; `None` for a name that is no role at all.

        Raises:
            Missing: a role that this model hasn't, or that can't be told.
        """
        if role in SINGLE:
            path: str = getattr(self, f"_{role}")()
            return Ends(path, path)
        match = _BLOCK.fullmatch(role)
        if match is None:
            return None
        index, part = int(match[1]), match[2]
        if index >= self.count:
            raise Missing(f"its blocks ({self.blocks}) are block.0 to block.{self.count - 1}")
        path = f"{self.blocks}.{index}"
        block = _Part(path, self.paths[path])
        if part is None:
            return Ends(path, path)
        return _attention(block) if part == "attention" else _mlp(block)

    def names(self) -> tuple[str, ...]:
        """What the roles of a model with these blocks are called, whether or not it has them all.

        Raises:
            Missing: which its blocks are can't be told.
        """
        return ("embeddings", *(f"block.{i}{part}" for i in range(self.count) for part in PARTS), *SINGLE[1:])

    def roles(self) -> dict[str, Ends]:
        """Every role that the model has."""
        try:
            names = self.names()
        except Missing:
            names = SINGLE
        found = {}
        for role in names:
            try:
                ends = self.find(role)
            except Missing:
                continue
            if ends is not None:
                found[role] = ends
        return found

    def _names_of(self, module: nn.Module | None) -> list[str]:
        return [] if module is None else [p for p, m in self.paths.items() if m is module]

    def _embeddings(self) -> str:
        # Asked of the innermost model that holds the blocks: T5's two stacks have an embedding each, and the one that the
        # whole names is never called.
        names: list[str] = []
        level = self.blocks
        while level and not names:
            level = _parent(level)
            names = self._names_of(_said(self.paths[level], "get_input_embeddings"))
        if not names:
            raise Missing("it names no token embedding (get_input_embeddings())")
        path = max(names, key=lambda name: _shared(self.blocks, name))
        while (above := _parent(path)) != path and not _inside(self.blocks, above):
            path = above
        return path

    def _final_norm(self) -> str:
        # Not beyond the base model: a norm there is the head's (DistilBERT's vocab_layer_norm).
        base = self._names_of(getattr(self.model.module, "base_model", None))
        tops = {self.model.path, *base}
        level = self.blocks
        while level and level not in tops:
            level = _parent(level)
            norms = [
                part.path
                for part in _parts(level, self.paths[level])
                if _is_norm(part.module, self.hidden) and "emb" not in part.path.rpartition(".")[2]
            ]
            if len(norms) > 1:
                raise Missing(f"there are several norms beside its blocks ({', '.join(norms)})")
            if norms:
                return norms[0]
        raise Missing("no norm stands behind its blocks (in BERT each block ends with one of its own)")

    def _lm_head(self) -> str:
        names = self._names_of(_said(self.model.module, "get_output_embeddings"))
        if not names:
            raise Missing(
                f"{type(self.model.module).__name__} has no head over the vocabulary; load it as one that has, such as "
                "with auto=transformers.AutoModelForCausalLM"
            )
        return names[0]


def _said(model: nn.Module, method: str) -> nn.Module | None:
    """What a model itself answers. Some refuse (a vision model has no token embedding)."""
    try:
        answer: nn.Module | None = getattr(model, method, lambda: None)()
    except NotImplementedError:
        return None
    return answer


# --- inside a block ---


def _attention(block: _Part) -> Ends:
    found = _mixers(block)
    if len(found) != 1:
        raise Missing(_undecided("is called with an attention mask", block, found))
    part = _core(found[0])
    if any(isinstance(m, nn.Conv1d) for m in part.module.modules()):
        raise Missing(f"{part.path} convolves, so it is no attention as others are; say its path if you mean it")
    inner = [p for p in _parts(*part) if _matrices(p)]
    masked = [p for p in inner if _takes_mask(p.module)]
    if len(masked) == 1 and len(inner) == 2:
        closing = next(p for p in inner if p is not masked[0])
        return Ends(masked[0].path, _core(closing).path)
    if masked:  # ALBERT's groups of layers
        raise Missing(
            f"{part.path} is more than an attention; say the path of the one you mean, or which blocks= are meant"
        )
    return Ends(part.path, part.path)


def _mlp(block: _Part) -> Ends:
    found = [p for p in _parts(*block) if _matrices(p) and not _takes_mask(p.module)]
    if len(found) == 2 and _fit(*found):
        return Ends(found[0].path, _core(found[1]).path)
    if len(found) > 1:
        # Beside other things with matrices, as in Gemma 3n: the one that has several of them, and an activation.
        found = [p for p in found if len(_matrices(p)) > 1 and _activates(p)] or found
    if len(found) != 1:
        raise Missing(_undecided("has matrices and is no attention", block, found))
    path = _core(found[0]).path
    return Ends(path, path)


def _undecided(what: str, block: _Part, found: list[_Part]) -> str:
    if not found:
        return f"no part of {block.path} ({type(block.module).__name__}) {what}"
    return f"more than one part of {block.path} {what} ({', '.join(p.path for p in found)}); say the path of the one you mean"


def _parts(path: str, module: nn.Module) -> Iterator[_Part]:
    """The children, and instead of a list its items: a list is never called."""
    for key, child in module.named_children():
        where = f"{path}.{key}" if path else key
        if isinstance(child, nn.ModuleList):
            yield from _parts(where, child)
        else:
            yield _Part(where, child)


def _items(path: str, blocks: nn.ModuleList) -> Iterator[_Part]:
    return (_Part(f"{path}.{i}", block) for i, block in enumerate(blocks))


def _mixers(block: _Part) -> list[_Part]:
    """The parts that mix tokens: those that are called with a mask of them."""
    return [part for part in _parts(*block) if _takes_mask(part.module) and _matrices(part)]


def _takes_mask(module: nn.Module) -> bool:
    forward: Any = type(module).forward
    return _has_mask(forward)


@functools.lru_cache(maxsize=1024)
def _has_mask(forward: Any) -> bool:
    try:
        return not {"attention_mask", "mask"}.isdisjoint(inspect.signature(forward).parameters)
    except (TypeError, ValueError):  # a scripted forward has none
        return False


def _matrices(part: _Part) -> list[_Part]:
    """The modules in it that hold a matrix of their own. Whatever has `in_features` is one, however it keeps its weight."""
    if _width(part.module) or any(t.ndim > 1 for t in _own_tensors(part.module)):
        return [part]
    return [found for child in _parts(*part) for found in _matrices(child)]


def _own_tensors(module: nn.Module) -> Iterator[Any]:
    yield from module.parameters(recurse=False)
    yield from module.buffers(recurse=False)  # quantised weights


def _width(module: nn.Module) -> tuple[int, int] | None:
    """What a matrix takes and gives, where it says so."""
    taken, given = getattr(module, "in_features", None), getattr(module, "out_features", None)
    if isinstance(taken, int) and isinstance(given, int):
        return taken, given
    weight = getattr(module, "weight", None)
    if isinstance(getattr(module, "nf", None), int) and weight is not None:  # transformers' Conv1D: [in, out]
        return int(weight.shape[0]), int(weight.shape[1])
    return None


def _fit(first: _Part, second: _Part) -> bool:
    """Whether two parts are a matrix each, the one from hidden to inner width (twice as wide where gated), the other back."""
    up, down = _matrices(first), _matrices(second)
    if len(up) != 1 or len(down) != 1:
        return False
    wide, narrow = _width(up[0].module), _width(down[0].module)
    return wide is not None and narrow is not None and wide[0] == narrow[1] and wide[1] in (narrow[0], 2 * narrow[0])


def _activates(part: _Part) -> bool:
    """Whether something in it has nothing to learn and nothing inside, and is no dropout: an activation function."""
    return any(
        not isinstance(m, nn.Dropout | nn.Identity) and not [*m.children(), *_own_tensors(m)]
        for m in part.module.modules()
    )


def _core(part: _Part) -> _Part:
    """A part that is one thing beside a norm (and so adds the residual itself) stands for that one thing."""
    inner = [p for p in _parts(*part) if _matrices(p)]
    normed = any(_is_norm(p.module) for p in _parts(*part))
    return _core(inner[0]) if len(inner) == 1 and normed else part


def _is_norm(module: nn.Module, width: int | None = None) -> bool:
    """Whether all it learns are vectors (of that width)."""
    shapes = [tuple(p.shape) for p in module.parameters()]
    return bool(shapes) and all(len(s) == 1 and (width is None or s[0] == width) for s in shapes)


# --- paths ---


def _parent(path: str) -> str:
    return path.rpartition(".")[0]


def _inside(path: str, above: str) -> bool:
    return not above or path == above or path.startswith(above + ".")


def _shared(a: str, b: str) -> int:
    """How many levels two paths have in common."""
    levels = 0
    for x, y in zip(a.split("."), b.split("."), strict=False):
        if x != y:
            break
        levels += 1
    return levels
