"""A graph's edges to other ranks: what they are, what both sides call them, and which run is which."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from weave.errors import GraphMismatchException, StitchedModuleException
from weave.graph.plan import Plan
from weave.graph.targets import RemoteTarget
from weave.remote.channels import Receiving, Sending
from weave.remote.options import LinkOptions
from weave.remote.session import Session, text
from weave.remote.wire import Abort, RunKey

Edge = tuple[int, int, str]  # the rank that sends, the rank that receives, the key

_REMEMBERED = 4096  # aborts of runs that have not begun here


class RemoteUnit(NamedTuple):
    """A unit of the plan that sends or receives."""

    node: str
    role: str
    key: str
    peers: tuple[int, ...]
    transport: str | None
    timeout: float | None


def remote_units(plan: Plan) -> list[RemoteUnit]:
    """Those of a plan."""
    found = []
    for unit in plan.units:
        if isinstance(unit.target, RemoteTarget):
            port = unit.entries[0].port if unit.role == "send" else unit.exits[0].port
            target = unit.target
            found.append(
                RemoteUnit(unit.node, unit.role, port.name, global_peers(target), target.transport, target.timeout)
            )
    return found


def global_peers(target: RemoteTarget) -> tuple[int, ...]:
    """A target's peers as ranks of the world: `peer_rank` counts in its process group.

    As they are where torch.distributed is not there yet: a graph may be tied, and looked at, before it is.
    """
    from torch import distributed

    if target.process_group is None or not (distributed.is_available() and distributed.is_initialized()):
        return target.peers
    return tuple(distributed.get_global_rank(target.process_group, peer) for peer in target.peers)


class Pair:
    """This rank and one peer, in one graph."""

    def __init__(self, peer: int, edges: Iterable[Edge], name: str, credits: int) -> None:
        self.peer = peer
        self.name = name  # how both sides call the graph
        self.edges = sorted(edges)
        self.channels: Mapping[Edge, int] = {edge: place for place, edge in enumerate(self.edges)}
        self.sending = Sending(credits)
        self.receiving = Receiving(credits, name)
        self.theirs: list[Edge] | None = None  # the edges as the peer has them, once it has said so
        self.their_options: Mapping[str, Any] = {}
        self.gone = ""  # why no more will come from the peer
        self.sent = self.came = 0  # ties and values, either way
        self.last: int | None = None  # how many the peer has sent in all, once it has closed its part

    def mismatch(self, rank: int, options: LinkOptions) -> GraphMismatchException | None:
        """The error for edges that one side has and the other has not, and for settings that differ."""
        if self.theirs is None:
            return None
        differs = options.disagreements(self.their_options)
        if differs:
            return GraphMismatchException(
                f"the links of ranks {rank} and {self.peer} have different settings (seen from rank {rank}): "
                f"{'; '.join(differs)}. Give both the same LinkOptions, or WEAVE_LINK_* variables"
            )
        if self.theirs == self.edges:
            return None
        ours, theirs = set(self.edges), set(self.theirs)
        lines = [f"only rank {rank} has {_edge_text(edge)}" for edge in sorted(ours - theirs)]
        lines += [f"only rank {self.peer} has {_edge_text(edge)}" for edge in sorted(theirs - ours)]
        return GraphMismatchException(
            f"ranks {rank} and {self.peer} tied graphs ({self.name}) whose shared edges differ:\n  "
            + "\n  ".join(lines)
            + "\nEvery value that one rank sends, the other must receive under the same key. Tie the graphs in the same "
            "order on both, or give them names: knot(name=...)",
            edges=tuple(map(_edge_text, sorted(ours ^ theirs))),
        )


def _edge_text(edge: Edge) -> str:
    return f"{edge[2]!r} from rank {edge[0]} to rank {edge[1]}"


class RemoteGraph:
    """One `StitchedModule`'s edges to other ranks, and its runs. Guarded by the link's lock."""

    def __init__(self, rank: int, units: Iterable[RemoteUnit], names: Mapping[int, str], credits: int) -> None:
        self.rank = rank
        edges: dict[int, list[Edge]] = {}
        for unit in units:
            for peer in unit.peers:
                ends = (rank, peer) if unit.role == "send" else (peer, rank)
                edges.setdefault(peer, []).append((*ends, unit.key))
        self.pairs = {peer: Pair(peer, found, names[peer], credits) for peer, found in edges.items()}
        self.runs: dict[RunKey, Session] = {}
        self.aborted: OrderedDict[tuple[int, RunKey], Abort] = OrderedDict()
        self.closed = False
        self._runs = 0
        self._uses: dict[int | str, int] = {}
        # By stream: the first index that has not begun, and those behind it that have: a loop starts tasks in any order.
        self._reached: dict[int, tuple[int, set[int]]] = {}

    # --- identities ---

    def begin(self, key: int | str | None, item: tuple[int, int] | None) -> Session:
        """A run begins: an item of a stream, one with a key of the user's, or the next one."""
        other: RunKey | None = None
        if item is not None:
            run = RunKey(None, *item)
            first, behind = self._reached.get(item[0], (0, set()))
            behind.add(item[1])
            while first in behind:
                behind.discard(first)
                first += 1
            self._reached[item[0]] = (first, behind)
        elif key is not None:
            run = RunKey(key, self._uses.get(key, 0), None)
            self._uses[key] = run.nth + 1
        else:
            run = RunKey(None, self._runs, None)
            self._runs += 1
            other = next((known for known in self.runs if known.key is None and known.index is None), None)
        session = self.runs[run] = Session(self, run)
        if other is not None:
            # Not raised here: the peers are to hear that this run failed, as they would of any other reason.
            session.failure = StitchedModuleException(
                f"{text(run)} of a graph that reaches other ranks begins while {text(other)} is under way, and the other "
                "ranks can't tell which of the two comes first: give each a key that all ranks give, "
                "stitched.with_options(run_key=...).run(...), or use stitched.stream(...)"
            )
        return session

    def over(self, run: RunKey) -> bool:
        """Whether a run has ended here, so that nobody waits for anything of it."""
        if run in self.runs:
            return False
        if run.index is not None:
            first, behind = self._reached.get(run.nth, (0, set()))
            return run.index < first or run.index in behind
        begun = self._runs if run.key is None else self._uses.get(run.key, 0)
        return run.nth < begun

    def remember(self, peer: int, abort: Abort) -> None:
        """A peer's run has failed that has not begun here."""
        self.aborted[peer, abort.run] = abort
        while len(self.aborted) > _REMEMBERED:
            self.aborted.popitem(last=False)

    def recalled(self, run: RunKey) -> list[tuple[int, Abort]]:
        """What peers said of a run before it began here."""
        found = [(peer, abort) for (peer, known), abort in self.aborted.items() if known == run]
        for peer, _ in found:
            del self.aborted[peer, run]
        return found


def check_edges(units: Iterable[RemoteUnit], rank: int, world_size: int) -> list[str]:
    """What is wrong with a graph's edges in a world, in sentences; empty where nothing is."""
    problems: list[str] = []
    for unit in units:
        for peer in unit.peers:
            if peer == rank:
                problems.append(f"{unit.node} would talk to rank {peer}, which is this one: stitch the ports directly")
            elif not 0 <= peer < world_size:
                problems.append(
                    f"{unit.node} would talk to rank {peer}, and there are {world_size} (0 to {world_size - 1})"
                )
    return problems


def plain(value: Any) -> Any:
    """A list of edges off the wire, as tuples."""
    return sorted((int(source), int(destination), str(key)) for source, destination, key in value)
