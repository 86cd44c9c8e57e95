"""The records that plugins' hooks return. Frozen and keyword-only, so that a new field breaks nobody."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

from weave.graph.targets import Target
from weave.spi.executor import Executor, Preparation
from weave.spi.transport import Endpoint, Meeting


def _no_arguments(parser: Any) -> None:
    return None


def _nothing(target: Any) -> Iterable[Any]:
    return ()


@dataclass(frozen=True, kw_only=True)
class TargetType:
    """A kind of target.

    Args:
        name: for messages and listings.
        target: the class; subclasses count too, unless they have a record of their own.
        executor: computes its firings; `None` where the engine itself stands for the target (the external boundary).
        sources: which kinds of port, `"input"` and `"output"`, a stitch may start from.
        destinations: which kinds of port a stitch may end on.
        prepare: called once a node while the knot is tied; checks ports (raise a `KnotException`) and returns what each
            firing finds in `firing.prepared`.
        owns: the `nn.Module`s and `Parameter`s of a target that the `StitchedModule` registers.
        resources: makes a context manager for what a target needs opened (a connection, say), given the target; entered
            by `with stitched` or `async with stitched`, an asynchronous one by the latter only. Its value is
            `firing.resources`.
    """

    name: str
    target: type[Target]
    executor: Executor | None
    sources: Collection[str] = ("output",)
    destinations: Collection[str] = ("input",)
    prepare: Callable[[Preparation], Any] | None = None
    owns: Callable[[Any], Iterable[Any]] = _nothing
    resources: Callable[[Any], AbstractContextManager[Any] | AbstractAsyncContextManager[Any]] | None = None


@dataclass(frozen=True, kw_only=True)
class ReducerDef:
    """A named reducer: `fn(acc, value, original, index, all_values)`, for one kind of port."""

    name: str
    fn: Callable[..., Any]
    kind: Literal["input", "output"]
    requires_original_output: bool = False


@dataclass(frozen=True, kw_only=True)
class AdapterDef:
    """A named adapter: `fn(value)`, for both kinds of port unless `kind` says one.

    `each_call=True`: at a port with `call="last"` or `"all"` it runs at each call as it happens, not once at the end.
    That is what `clone` needs to keep what the next call overwrites.
    """

    name: str
    fn: Callable[[Any], Any]
    kind: Literal["input", "output"] | None = None
    each_call: bool = False


@dataclass(frozen=True, kw_only=True)
class TransportType:
    """A way between ranks.

    Args:
        scheme: its name, as in `RemoteTarget(1, transport="zmq")`.
        connect: `connect(meeting) -> Endpoint`: makes a rank's end, given a `Meeting`. Waits for no other rank: whom it
            talks to is known when something is sent.
        capabilities: words for what it can do.
    """

    scheme: str
    connect: Callable[[Meeting], Endpoint]
    capabilities: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """The scheme, under the word that all records answer to."""
        return self.scheme


@dataclass(frozen=True, kw_only=True)
class Command:
    """A subcommand of `weave`.

    Args:
        name: the word after `weave`.
        about: a line for `weave --help`.
        add_arguments: is given an `argparse.ArgumentParser`.
        run: is given the parsed arguments, returns the exit status.
    """

    name: str
    about: str
    run: Callable[[Any], int]
    add_arguments: Callable[[Any], None] = _no_arguments
