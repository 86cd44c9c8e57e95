"""The executor protocol: how a target type computes. The engine calls this and nothing else of a target.

An executor is one object a target type. It has `fire(firing)`, a function or an `async def`, called once for every
firing of every node of its type; all state of a firing is in `firing`. It may also have
`function(target)`, asked once while the knot is tied: then "call what it returned with the arguments of the one input,
deliver the result at the one output" is all there is to a firing, and a driver may do that itself, without making a
`Firing`. `fire` must then do the same.

Where a target is fired under `run` is said by `lane(target)`, asked once at the knot: `"thread"` (a worker thread, the
default), `"inline"` (the event loop's own thread, for what is cheaper than a hop) or `"await"` (the loop, because what
`function` returned gives something to await). An `async def fire` is always the last.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeVar, runtime_checkable

from weave.graph.plan import InPort, OutPort
from weave.graph.targets import Target

T = TypeVar("T")


class Firing(Protocol):
    """One firing of one node, as its executor sees it."""

    @property
    def target(self) -> Target:
        """The target that fires."""

    @property
    def node(self) -> str:
        """The node's id, for messages."""

    @property
    def args(self) -> tuple[Any, ...]:
        """The positional arguments of the run, which every `ModuleTarget`'s module gets."""

    @property
    def kwargs(self) -> Mapping[str, Any]:
        """The keyword arguments of the run."""

    @property
    def prepared(self) -> Any:
        """What the record's `prepare` returned when the knot was tied."""

    @property
    def resources(self) -> Any:
        """What the record's `resources` opened for this target. Raises where the `StitchedModule` was not entered."""

    def inputs(self, port: InPort | str = "", *, original: Any = None) -> Any:
        """What the stitches brought to a port, reduced: an `InputArgs` at an input, a value at an output.

        May be called again with another `original` (a submodule called twice reduces at each call). A string means the
        input port of that name. Destination adapters have run, once; reducers run now.
        """

    def deliver(self, port: OutPort | str, value: Any) -> None:
        """Hand a value to everything that is stitched from a port. May be called before the firing has finished."""

    def settled(self) -> None:
        """Say that what was delivered so far will not be touched by this firing again. Optional.

        Until then, and else until the firing's end, a tensor that was delivered early counts as still needed by its
        producer: a consumer that changes it in place is an error.
        """

    def check_cancelled(self) -> None:
        """Raise if the run is being cancelled. For long synchronous work, between steps."""

    async def blocking(self, function: Callable[..., T], *args: Any) -> T:
        """Run a blocking function in a worker thread of the run."""


@runtime_checkable
class Executor(Protocol):
    """What a target type's record names."""

    def fire(self, firing: Any) -> Awaitable[None] | None:
        """Compute: read `firing.inputs(...)`, call `firing.deliver(...)` for every output port in use."""


class Preparation(Protocol):
    """A node while the knot is tied, as a record's `prepare` sees it."""

    @property
    def target(self) -> Target:
        """The target."""

    @property
    def node(self) -> str:
        """The node's id, for messages."""

    @property
    def inputs(self) -> tuple[InPort, ...]:
        """Ports at which stitches end."""

    @property
    def outputs(self) -> tuple[OutPort, ...]:
        """Ports from which stitches start."""

    @property
    def early_exit(self) -> bool:
        """`knot(early_exit=...)`."""

    @property
    def cache_predicate(self) -> Callable[[str, Any], bool] | None:
        """`knot(capture_cache_outputs_predicate=...)`, `None` where it names nothing."""
