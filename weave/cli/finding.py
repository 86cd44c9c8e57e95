"""What `module:attribute` on a command line stands for."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from typing import Any


def found(where: str, wanted: type | tuple[type, ...], *, example: str, leave: type | tuple[type, ...] = ()) -> Any:
    """The object at `module:attribute`; called without arguments where it is none of `wanted`, but can be called.

    What a `leave` is is never called. What an import or a call prints goes to standard error: standard output may be a
    picture, or JSON.

    Raises:
        LookupError: with a sentence for the user.
    """
    name, _, attribute = where.partition(":")
    if not name or not attribute:
        raise LookupError(f"{where!r} is not of the form module:attribute, such as {example}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` does, so that a file beside the user is found
    with contextlib.redirect_stdout(sys.stderr):
        try:
            thing: Any = importlib.import_module(name)
        except Exception as error:  # a module may raise anything while it is imported
            raise LookupError(f"can't import {name!r}: {type(error).__name__}: {error}") from error
        for part in attribute.split("."):
            if not hasattr(thing, part):
                raise LookupError(f"{name!r} has no {attribute!r}")
            thing = getattr(thing, part)
        if not isinstance(thing, wanted) and not isinstance(thing, leave) and callable(thing):
            try:
                thing = thing()
            except Exception as error:
                raise LookupError(f"calling {where} without arguments failed: {error!r}") from error
    return thing
