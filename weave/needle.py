"""`Needle`: stitch ports together, then tie the knot."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Self

from torch import nn

from weave.engine.options import RunOptions
from weave.graph.descriptors import InputDescriptor, IODescriptor, Node, OutputDescriptor, StitchDescriptor
from weave.graph.partition import Part, partition, places_of
from weave.graph.plan import node_ids
from weave.graph.targets import ExternalTarget, Target
from weave.plugins.plugin_set import PluginSet
from weave.remote.world import current
from weave.stitched import StitchedModule, always_false_predicate


class Needle:
    """Stitches ports of targets together.

    `Needle().stitch(teacher.output("layers.3"), student.input("")).knot()`. A knotted module is finished: stitching on
    with the same needle changes only what it knots next.
    """

    def __init__(self) -> None:
        self.nodes: dict[Target, Node] = {}
        self.places: dict[Target | tuple[str, str], int] = {}
        self._stitched: dict[tuple[int, int], StitchDescriptor] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"nodes": self.nodes, "places": self.places}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.nodes = state["nodes"]
        self.places = state.get("places", {})
        self._stitched = {
            (id(stitch.source_descriptor), id(stitch.destination_descriptor)): stitch
            for node in self.nodes.values()
            for stitch in node.stitches_to
        }

    def get_node_for_target(self, target: Target) -> Node:
        """The target's node; it is part of the graph from now on, also without a stitch."""
        node = self.nodes.get(target)
        if node is None:
            node = self.nodes[target] = Node(target)
        return node

    def stitch(self, src: IODescriptor, dst: IODescriptor) -> Self:
        """Let the value at `src` go to `dst`. Passing the very same two objects again changes nothing.

        Raises:
            TypeError: where one of them is no port.
        """
        if not isinstance(src, InputDescriptor | OutputDescriptor):
            raise _no_port(src)
        if not isinstance(dst, InputDescriptor | OutputDescriptor):
            raise _no_port(dst)
        key = (id(src), id(dst))
        if key not in self._stitched:
            # Kept by the descriptor, which keeps both ports alive: no other object can get their ids.
            stitch = self._stitched[key] = StitchDescriptor(src, dst)
            self.get_node_for_target(src.target).stitches_from.append(stitch)
            self.get_node_for_target(dst.target).stitches_to.append(stitch)
        return self

    def place(self, target: Target | IODescriptor, rank: int) -> Self:
        """Say on which rank a target computes. Every rank then builds the same graph, and `knot` keeps its own part.

        Functions and constants that are not placed go where they are used. What the caller gives and gets is on rank 0,
        unless `ExternalTarget()` is placed, or one port of it: `needle.place(caller.output("loss"), rank=3)`.

        Raises:
            TypeError: what is placed is no target; a rank is no number from 0 on.
        """
        if isinstance(rank, bool) or not isinstance(rank, int) or rank < 0:
            raise TypeError(f"a rank is a number from 0 on, not {rank!r}")
        if isinstance(target, InputDescriptor | OutputDescriptor):
            if not isinstance(target.target, ExternalTarget):
                raise TypeError(
                    f"{target!r} is a port, and a target is placed as a whole: needle.place({target.target!r}, ...). Only ports "
                    "of ExternalTarget() have places of their own"
                )
            self.places[target.kind, target.name] = rank
        elif isinstance(target, Target):
            self.places[target] = rank
        else:
            raise TypeError(f"a target is placed, such as ModuleTarget(...), not a {type(target).__name__}")
        return self

    def knot(
        self,
        capture_cache_outputs_predicate: Callable[[str, nn.Module], bool] = always_false_predicate,
        early_exit: bool = True,
        ignore_extra_overrides: bool = False,
        *,
        options: RunOptions = RunOptions(),
        plugins: PluginSet | Iterable[Any] | None = None,
        name: str | None = None,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> StitchedModule:
        """Check the graph and make it an `nn.Module` that runs it.

        Args:
            capture_cache_outputs_predicate: names the submodules that may be skipped for fake inputs, once a run has
                shown what they return.
            early_exit: leave a module's forward as soon as everything the graph wants of it was captured.
            ignore_extra_overrides: let a call bring override names that the graph has no port for.
            options: how `run` runs it; `stitched.with_options(...)` changes them later.
            plugins: a `weave.plugins.PluginSet`, or plugin objects, beside the built-in ones. `None`: what is installed.
            name: what the ranks call the graph, where it reaches others. `None`: the how-manyth knot between the two.
            rank: which part of a graph with places this is. `None`: this process's rank (torch.distributed, or
                `weave.remote.join`).
            world_size: how many ranks there are, likewise.

        Raises:
            KnotException: the graph can't be tied; the message says why and what to do.
            PluginException: a reducer or adapter name that nobody registers.
        """
        nodes, elsewhere = self.nodes, {}
        if self.places or rank is not None or world_size is not None:
            part = self._part(rank, world_size)
            nodes, elsewhere = part.nodes, part.elsewhere
        return StitchedModule(
            nodes,
            capture_cache_outputs_predicate,
            early_exit,
            ignore_extra_overrides,
            options=options,
            plugins=plugins,
            name=name,
            elsewhere=elsewhere,
        )

    def whole(self) -> tuple[StitchedModule, dict[str, int]]:
        """The graph of all ranks as one, to be looked at, and which rank computes each node (by its id)."""
        ids = node_ids(self.nodes)
        return StitchedModule(self.nodes), places_of(self.nodes, ids, self.places) if self.places else {}

    def _part(self, rank: int | None, world_size: int | None) -> Part:
        """A rank's part of the graph."""
        world = current()
        if rank is None:
            rank = 0 if world is None else world.rank
        if world_size is None:
            world_size = 1 if world is None else world.world_size
        if not 0 <= rank < world_size:
            raise ValueError(f"rank={rank} of world_size={world_size}: ranks count from 0")
        for target in self.places:
            if isinstance(target, Target):
                self.get_node_for_target(target)
        return partition(self.nodes, node_ids(self.nodes), self.places, rank, world_size)


def _no_port(value: Any) -> TypeError:
    hint = ""
    if isinstance(value, Target):
        hint = ": a stitch joins ports, such as target.input(...) and target.output(...)"
    elif isinstance(value, nn.Module):
        hint = ': make it a target first, ModuleTarget("name", module), and stitch its .input("") or .output("")'
    return TypeError(f"{type(value).__name__} is no port{hint}")
