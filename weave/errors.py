"""Every exception that weave raises, in one place.

Two families: `KnotException` is raised while a graph is tied (`Needle.knot`,
`StitchedModule(nodes)`), before anything ran; `StitchedModuleException` is raised by a run. Each message says what is
wrong, where (node, port) and what to do; the same facts are attributes, so that a program need not parse the text.
Beside the family, each derives from the built-in that somebody would catch who has never heard of weave.

What a node of yours raises is not here: it reaches you as it is, with a note that names the node, the stitches that fed
it and the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class _Report(Exception):
    """Text first, facts by keyword. `KeyError` would print its argument's repr, hence `__str__`.

    Pickles and copies with its facts (an exception travels between processes and ranks).
    """

    def __init__(self, message: str = "", /, **facts: Any) -> None:
        super().__init__(message)
        self.__dict__.update(facts)

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


# --- while the knot is tied ---


class KnotException(Exception):
    """A graph that can't be tied. Raised by `knot()` only; nothing ran and no module was touched."""


class OnlyInternalNodesException(KnotException):
    """Neither the external boundary nor another rank takes part: no value could get in or out.

    Stitch something to or from an `ExternalTarget()` (or a `RemoteTarget`).
    """


class MultipleExternalNodesException(KnotException):
    """More than one external node. Only a subclass of `ExternalTarget` can be a second one: use `ExternalTarget()`."""


class LoopFoundException(KnotException):
    """A target needs, by way of others, what it gives itself. The message spells the cycle out."""


class InputsLoopFoundException(LoopFoundException):
    """A target's inputs lead back to itself. Use a second `ModuleTarget` on the same module for a second forward."""


class OutputsLoopFoundException(LoopFoundException):
    """A cycle in which every stitch ends on an output (an override): a target's outputs lead back to itself."""


class UnknownPortException(_Report, KnotException, KeyError):
    """A port that isn't there, can't be used in this direction, or can't be seen (never called, scripted, own call).

    Attributes: `node`, `port` (as it was written), `nearest` (names that exist and look alike).
    """

    node: str = ""
    port: str = ""
    nearest: Sequence[str] = ()


class ContradictionException(_Report, KnotException, ValueError):
    """Two wishes that can't both be met, such as a capture inside a submodule whose output is overridden unrun.

    Attributes: `node`, `port`.
    """

    node: str = ""
    port: str = ""


# --- in a run ---


class StitchedModuleException(Exception):
    """Something about a run that is the graph's affair rather than a node's own exception."""


class CantResolveNodeDependenciesException(StitchedModuleException):
    """A node can never fire: what it waits for was not delivered by a node that has finished."""


class OverridesException(_Report, StitchedModuleException, KeyError):
    """The override dicts of a call don't have the names that the graph takes from the external boundary.

    Attributes: `missing` and `extra` (names such as `input 'x'`), `expected`.
    """

    missing: Sequence[str] = ()
    extra: Sequence[str] = ()
    expected: Sequence[str] = ()


class PortNotReachedException(_Report, StitchedModuleException, RuntimeError):
    """A forward ended without passing a captured port, or without using an override. Attributes: `node`, `ports`."""

    node: str = ""
    ports: Sequence[str] = ()


class ChangedInPlaceException(_Report, StitchedModuleException, RuntimeError):
    """A tensor on its way was changed in place while somebody still needed it as it was.

    Attributes: `node` and `port` it came from, `suspects` (nodes that ran since it was last seen unchanged).
    Not raised for inference tensors (they have no version counter) nor for tensors inside objects that are no list,
    tuple, dict or `InputArgs`.
    """

    node: str = ""
    port: str = ""
    suspects: Sequence[str] = ()


class CheckpointException(_Report, StitchedModuleException, RuntimeError):
    """A port under activation checkpointing whose gradients would silently be wrong. Attributes: `node`, `port`.

    Raised for an override under any checkpointing and for a capture under the re-entrant kind, while gradients are
    wanted: the recompute happens in backward, after the run, and would not see the port.
    """

    node: str = ""
    port: str = ""


class RemoteException(_Report, StitchedModuleException, RuntimeError):
    """A peer rank failed, or can't be talked to.

    Attributes: `node` and `rank`, where it began; `kind` and `cause_text`: the exception there, as text; `cancelled`:
    whether the run was cancelled there rather than failed.
    """

    node: str = ""
    rank: int | None = None
    kind: str = ""
    cause_text: str = ""
    cancelled: bool = False


class PeerLostException(RemoteException, ConnectionError):
    """A peer rank is gone: killed, frozen or cut off. Attributes: those of `RemoteException`."""


class WireException(RemoteException, ValueError):
    """What came from a peer is no message of weave's, or says what can't be. Attributes: those of `RemoteException`."""


class GraphMismatchException(_Report, StitchedModuleException, ValueError):
    """Two ranks tied graphs whose shared edges differ. Attributes: `edges` (the ones that differ)."""

    edges: Sequence[str] = ()


# --- plugins ---


class PluginException(_Report, LookupError):
    """A plugin's name that is unknown, claimed twice, or whose plugin failed. Attributes: `name`, `nearest`."""

    name: str = ""
    nearest: Sequence[str] = ()


class PluginWarning(UserWarning):
    """An installed plugin could not be loaded, or has a function that looks like a hook and is none. Given once."""


# --- traces ---


class TraceException(_Report, ValueError):
    """A file that is no trace of weave's, or can't be read. Attributes: `path`."""

    path: str = ""
