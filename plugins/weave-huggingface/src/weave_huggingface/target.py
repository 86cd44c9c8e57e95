"""`HuggingFaceTarget`: a transformers model whose ports go by role."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

from weave import InputDescriptor, ModuleTarget, OutputDescriptor, UnknownPortException
from weave_huggingface.roles import Ends, Missing, Structure

# Options of from_pretrained that are about finding the files.
_WHERE = ("cache_dir", "local_files_only", "revision", "subfolder", "token", "trust_remote_code")


@dataclass(eq=False)
class HuggingFaceTarget(ModuleTarget):
    """A transformers model. Everything a `ModuleTarget` is, and its ports have names by role too.

    `block.3`, `block.3.attention`, `block.3.mlp`, `embeddings`, `final_norm` and `lm_head` are found in the model's
    structure; any other name is a submodule path, as ever. `roles()` shows which submodules the roles are. A port's
    name is turned into a path when the port is made, so weave's messages and drawings say the path.

    No target type of its own is registered: weave computes it as the `ModuleTarget` it is, and the `StitchedModule`
    owns the model, with its parameters, devices and `state_dict`.

    Args:
        name: for messages; need not be unique.
        module: the model, also inside a wrapper (DDP, `torch.compile(model)`).
        blocks: the path of the list of blocks, for models that have several (encoder and decoder).
    """

    _: KW_ONLY
    blocks: str | None = None

    @classmethod
    def from_pretrained(
        cls, name: str, path: str | os.PathLike[str], *, auto: Any = None, blocks: str | None = None, **options: Any
    ) -> Self:
        """A target on the model saved at `path` (a folder, or a name on the hub), in eval mode.

        Args:
            name: the target's.
            path: where the model is.
            auto: what loads it, such as `transformers.AutoModelForCausalLM`; by default the class that was saved.
            blocks: see the class.
            options: for `from_pretrained`: `dtype=`, `device_map=`, `attn_implementation=`, `local_files_only=` ...
        """
        if auto is None:
            from transformers import AutoConfig

            auto = _named(AutoConfig.from_pretrained(path, **{k: options[k] for k in _WHERE if k in options}))
        return cls(name, auto.from_pretrained(path, **options).eval(), blocks=blocks)

    @classmethod
    def from_config(
        cls, name: str, config: Any, *, auto: Any = None, blocks: str | None = None, **options: Any
    ) -> Self:
        """A target on a model with random weights (of torch's generator, as ever), in eval mode.

        Args:
            name: the target's.
            config: a transformers config, or the path of one.
            auto: what makes it: `transformers.AutoModelForCausalLM`, or a model class; by default the class that the
                config names in `architectures`.
            blocks: see the class.
            options: for `from_config`: `dtype=`, `attn_implementation=` ...

        Raises:
            ValueError: the config names no class and `auto` isn't given.
        """
        if isinstance(config, str | os.PathLike):
            from transformers import AutoConfig

            config = AutoConfig.from_pretrained(config)
        auto = _named(config) if auto is None else auto
        # A model class has it under this name only. Its constructor would do nothing about dtype= and the like.
        make = getattr(auto, "from_config", None) or auto._from_config
        return cls(name, make(config, **options).eval(), blocks=blocks)

    def roles(self) -> dict[str, Ends]:
        """Every role that this model has, with the submodule paths of its input and its output port."""
        return Structure(self.module, self.blocks).roles()

    def input(self, name: str, *args: Any, **kwargs: Any) -> InputDescriptor:
        """The input port of a role or a submodule path; further arguments as for a `ModuleTarget`.

        Raises:
            UnknownPortException: neither a role of this model nor a path in it.
        """
        return super().input(self._ends(name, "input").input, *args, **kwargs)

    def output(self, name: str, *args: Any, **kwargs: Any) -> OutputDescriptor:
        """The output port of a role or a submodule path; further arguments as for a `ModuleTarget`.

        Raises:
            UnknownPortException: neither a role of this model nor a path in it.
        """
        return super().output(self._ends(name, "output").output, *args, **kwargs)

    def _ends(self, name: str, kind: str) -> Ends:
        structure = Structure(self.module, self.blocks)
        why = "it is no role"
        try:
            ends = structure.find(name)
        except Missing as error:
            ends, why = None, str(error)
        if ends is not None:
            return ends
        if name in structure.paths:
            return Ends(name, name)
        said = f"{self.name}.{kind}({name!r})"
        near = _near(name, structure)
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "roles() lists the roles"
        raise UnknownPortException(
            f"{said}: {type(self.module).__name__} has no such port: {why}, and no submodule has that path; {hint}",
            node=self.name,
            port=said,
            nearest=tuple(near),
        )


def _near(name: str, structure: Structure) -> list[str]:
    ends = [path for path in structure.paths if path.endswith(f".{name}")]
    near = [*_alike(name, structure.roles(), 3), *ends, *_alike(name, structure.paths, 2)]
    return list(dict.fromkeys(near))[:4]


def _alike(name: str, names: Iterable[str], count: int) -> list[str]:
    """The names most like it. Of equally near ones the first come first, which difflib's own function doesn't do."""
    matcher = difflib.SequenceMatcher(b=name)
    scores = {}
    for candidate in names:
        matcher.set_seq1(candidate)
        if matcher.quick_ratio() >= 0.6 and (score := matcher.ratio()) >= 0.6:
            scores[candidate] = score
    return sorted(scores, key=lambda candidate: -scores[candidate])[:count]


def _named(config: Any) -> Any:
    """The class that a config says the model is."""
    import transformers

    for architecture in getattr(config, "architectures", None) or ():
        found = getattr(transformers, architecture, None)
        if found is not None:
            return found
    raise ValueError(
        f"this {type(config).__name__} names no class of transformers in `architectures`; say what shall load it, such as "
        "auto=transformers.AutoModelForCausalLM"
    )
