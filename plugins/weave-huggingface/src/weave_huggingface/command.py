"""`weave hf-roles PATH`: which submodules of a model the roles are, told from its config alone.

The model is built on the meta device, so no weight is read and none is made: a model of any size takes a second and no
memory. Called `hf-roles` and not `roles`, because plugins share the words after `weave`.
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from weave.plugins import Command, hookimpl
from weave_huggingface.roles import PARTS, Ends, Missing, Structure
from weave_huggingface.target import HuggingFaceTarget

CONFIG = "config.json"


class Refused(Exception):
    """There is nothing to show; the text is for the user."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "path", metavar="PATH", type=Path, help=f"a model's folder, or its {CONFIG}; no weights are read"
    )
    parser.add_argument(
        "--auto",
        metavar="CLASS",
        help="the class of transformers to build, such as AutoModelForCausalLM (the saved one)",
    )
    parser.add_argument("--blocks", metavar="MODULE", help="the list of blocks, where a model has several")
    parser.add_argument("--json", action="store_true", help="every role by itself, as JSON")


def run(args: argparse.Namespace) -> int:
    """Print the roles; 2 where there are none to print."""
    try:
        model, structure = look(args.path, args.auto, args.blocks)
        found, missing = told(structure)
    except Refused as error:
        print(f"weave hf-roles: {error}", file=sys.stderr)
        return 2
    if args.json:
        roles = [{"role": role, "input": ends.input, "output": ends.output} for role, ends in found.items()]
        print(json.dumps({"model": model, "blocks": structure.blocks, "roles": roles, "missing": missing}, indent=2))
        return 0
    print(f"{model}: {structure.count} blocks in {structure.blocks}")
    rows = [("role", "input port", "output port"), *((role, *ends) for role, ends in _folded(structure, found))]
    first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
    for row in rows:
        print(f"  {row[0]:<{first}}  {row[1]:<{second}}  {row[2]}".rstrip())
    for role, why in _folded(structure, {role: (why,) for role, why in missing.items()}):
        print(f"no {role}: {why[0]}")
    return 0


def look(path: Path, auto: str | None, blocks: str | None) -> tuple[str, Structure]:
    """The model's class, and its structure."""
    config = _config(path)
    import torch
    import transformers

    if auto is not None and not hasattr(transformers, auto):
        near = difflib.get_close_matches(auto, dir(transformers), n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "AutoModelForCausalLM is one"
        raise Refused(f"transformers {transformers.__version__} has no class {auto!r}; {hint}")
    if auto is None and not any(hasattr(transformers, name) for name in config.architectures or ()):
        raise Refused(
            f"{path} names no class of transformers {transformers.__version__} in `architectures`; say which to build, "
            "such as --auto AutoModelForCausalLM"
        )
    try:
        with torch.device("meta"):
            target = HuggingFaceTarget.from_config(
                "model", config, auto=None if auto is None else getattr(transformers, auto), attn_implementation="eager"
            )
    except Exception as error:  # a model's constructor, or transformers' own, for a config that does not fit
        raise Refused(
            f"transformers {transformers.__version__} can't build {auto or ', '.join(config.architectures)} from {path}: "
            f"{type(error).__name__}: {error}"
        ) from error
    return type(target.module).__name__, Structure(target.module, blocks)


def _config(path: Path) -> Any:
    if not path.exists():
        raise Refused(
            f"there is no {str(path)!r}: give a model's folder, or its {CONFIG}. Of a model on the hub this file is "
            f"enough: hf download NAME {CONFIG} --local-dir DIR"
        )
    file = path / CONFIG if path.is_dir() else path
    if not file.exists():
        raise Refused(f"there is no {CONFIG} in {str(path)!r}: give the folder that save_pretrained() has written")
    try:
        kind = json.loads(file.read_text(encoding="utf-8"))["model_type"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        why = "it says no model_type" if isinstance(error, LookupError | TypeError) else error
        raise Refused(f"{str(file)!r} is no config of transformers: {why}") from error
    import transformers

    try:
        return transformers.AutoConfig.from_pretrained(file)
    except Exception as error:
        if kind in transformers.CONFIG_MAPPING:
            said = f"transformers {transformers.__version__} can't read {str(file)!r}: {type(error).__name__}: {error}"
        else:
            said = (
                f"transformers {transformers.__version__} does not know models of type {kind!r}: a newer one may (pip "
                "install -U transformers). Where the code comes with the model, load it, and in Python "
                "HuggingFaceTarget('name', model).roles() says what this would have said"
            )
        raise Refused(said) from error


def told(structure: Structure) -> tuple[dict[str, Ends], dict[str, str]]:
    """The roles that the model has, and why it hasn't the others."""
    try:
        names = structure.names()
    except Missing as error:
        said = f"{type(structure.paths['']).__name__}: {_as_options(error)}"
        raise Refused(
            f"{said}. Roles are told from a list of blocks; every submodule path is a port without one"
        ) from error
    found: dict[str, Ends] = {}
    missing: dict[str, str] = {}
    for role in names:
        try:
            ends = structure.find(role)
        except Missing as error:
            missing[role] = _as_options(error)
        else:
            assert ends is not None
            found[role] = ends
    return found, missing


def _as_options(error: Missing) -> str:
    """What to do about it, in this command's words rather than Python's."""
    return str(error).replace("auto=transformers.", "--auto=").replace("blocks='", "--blocks='")


def _folded(structure: Structure, said: dict[str, Any]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Of each role what is said of it. What differs from block to block by the block's number alone is one row.

    Blocks alike are written as a shell would: `block.{0..31}.mlp`.
    """
    rows: list[
        tuple[str, int, int, tuple[str, ...]]
    ] = []  # the role, first and last block, the texts, "*" for a number
    at = f"{structure.blocks}."
    for part in ("embeddings", *PARTS, "final_norm", "lm_head"):
        if part not in PARTS:
            if part in said:
                rows.append((part, -1, -1, tuple(said[part])))
            continue
        for index in range(structure.count):
            role = f"block.{index}{part}"
            if role not in said:
                continue
            texts = tuple(_numberless(text, at, index) for text in said[role])
            same = f"block.*{part}"
            if rows and rows[-1][0] == same and rows[-1][2] == index - 1 and rows[-1][3] == texts:
                rows[-1] = (same, rows[-1][1], index, texts)
            else:
                rows.append((same, index, index, texts))
    for role, first, last, texts in rows:
        number = str(first) if first == last else f"{{{first}..{last}}}"
        yield role.replace("*", number), tuple(text.replace("*", number) for text in texts)


def _numberless(text: str, at: str, index: int) -> str:
    """With "*" for the block's number."""
    pieces = text.split(f"{at}{index}")
    return f"{at}*".join(pieces) if all(not p[:1].isdigit() for p in pieces[1:]) else text


@hookimpl
def weave_commands() -> list[Command]:
    """`weave hf-roles`."""
    about = "show which submodules of a transformers model the roles are, from its config"
    return [Command(name="hf-roles", about=about, add_arguments=add_arguments, run=run)]
