"""What a drawn graph has in it, and what happened in it: to see that the strategy covers what it is meant to."""

from __future__ import annotations

from collections import Counter

from . import vocabulary
from .description import EXTERNAL, Destination, Graph, Source
from .naive import Outcome
from .strategy import anatomy, skipped_calls
from .ways import PLAIN


def features(graph: Graph) -> set[str]:
    found = {f"size {(len(graph.targets) + 4) // 5 * 5} or less", f"early exit {graph.early_exit}"}
    found |= {f"{target.kind}: {target.what}" for target in graph.targets if target.kind in ("function", "constant")}
    models = [target.what for target in graph.targets if target.kind == "module"]
    found |= {f"module: {graph.models[what].split(':')[0]}" for what in models}
    if len(set(models)) < len(models):
        found.add("one module in two targets")
    found |= {f"source adapter: {end.kind} {end.adapter}" for end in graph.sources}
    found |= {f"destination adapter: {end.kind} {end.adapter}" for end in graph.destinations}
    found |= {f"reducer: {end.kind} {end.reducer}" for end in graph.destinations}
    found |= {f"given: {kind}" for _, kind in (*graph.given_inputs, *graph.given_outputs)}
    return found | stitch_features(graph) | module_features(graph) | way_features(graph)


def stitch_features(graph: Graph) -> set[str]:
    found = set()
    stitches = graph.distinct_stitches
    if len(stitches) < len(graph.stitches):
        found.add("the same two descriptors stitched again")
    if stitches != sorted(stitches):
        found.add("shuffled stitches")
    if max(Counter(s for s, _ in stitches).values()) > 1:
        found.add("one source descriptor in several stitches")
    if max(Counter(d for _, d in stitches).values()) > 1:
        found.add("one destination descriptor in several stitches")
    ends = [(graph.sources[s], graph.destinations[d]) for s, d in stitches]
    ports = Counter((end.target, end.kind, end.port, end.call) for _, end in ends)
    if max(ports.values()) > 1:
        found.add("several stitches on one port")
    if len({(s, end.target, end.kind, end.port) for (s, _), (_, end) in zip(stitches, ends, strict=True)}) < len(ends):
        found.add("f(x, x)")
    for source, end in ends:
        found.add(f"{source.kind} to {end.kind}")
        if source.target == end.target == EXTERNAL:
            found.add("external to external")
    fed = {end.target for _, end in ends}
    if any(t.kind == "function" and place not in fed for place, t in enumerate(graph.targets)):
        found.add("a function without arguments")
    return found


def way_features(graph: Graph) -> set[str]:
    """Who is called in which way, and who stands next to it."""
    ways = {place: target.way for place, target in enumerate(graph.targets) if target.kind == "function"}
    found = {f"{way}: {graph.targets[place].what}" for place, way in ways.items()}
    if len(set(ways.values())) > 1:
        found.add("functions given in several ways")
    for source, destination in graph.distinct_stitches:
        one, other = graph.sources[source].target, graph.destinations[destination].target
        if one in ways:
            found.add(f"{ways[one]} to a {graph.targets[other].kind}")
        if other in ways:
            found.add(f"{ways[other]} from a {graph.targets[one].kind}")
    if graph.awaits:
        found.add("a synchronous call needs a loop")
    if graph.refuses_a_synchronous_call:
        found.add("a synchronous call is refused")
    if graph.has_an_order and not all(way == PLAIN for way in ways.values()):
        found.add("an order though some run on the loop")
    return found


def module_features(graph: Graph) -> set[str]:
    found: set[str] = set()
    for place, target in enumerate(graph.targets):
        if target.kind != "module":
            continue
        shape = anatomy(graph.models, graph.side)[target.what]
        captures: list[Source] = [end for end in graph.sources if end.target == place]
        overrides: list[Destination] = [end for end in graph.destinations if end.target == place]
        for word, ends in (("capture", captures), ("override", overrides)):
            for end in ends:
                call = end.call if end.call in (None, "last", "all", 0) else "k"
                where = "root" if end.port == "" else "inner"
                found |= {f"{word}: {where} {end.kind}", f"{word}: call={call}"}
                if len(shape.same[end.port]) > 1:
                    found.add(f"{word}: tied name")
                if end.port != "" and end.call not in (None, 0) and shape.starts[end.port] > 1:
                    found.add(f"{word}: a later call of several")
        if skipped_calls(overrides, shape):
            found.add("override that skips")
        reducers = {end.reducer in vocabulary.REQUIRING_OUTPUT_REDUCERS for end in overrides if end.kind == "output"}
        if len(reducers) == 2 and len({shape.same[end.port] for end in overrides if end.kind == "output"}) == 1:
            found.add("reducers that require the original beside others on one port")
        if any(
            a is not b and a.port != b.port and shape.same[a.port] == shape.same[b.port] and a.kind == b.kind
            for a in overrides
            for b in overrides
        ):
            found.add("one submodule overridden by two of its names")
        if any(shape.same[a.port] == shape.same[b.port] and a.kind == b.kind for a in overrides for b in captures):
            found.add("a port both overridden and captured")
    return found


def happenings(outcome: Outcome) -> set[str]:
    found = {f"error due: {due.kind}, certain {due.certain}" for due in outcome.dues}
    found |= {f"error due on a loop: {due.kind}" for due in outcome.dues_on_a_loop}
    if len(outcome.trace_on_a_loop) > len(outcome.trace):
        found.add("something is run on a loop because its module has not failed yet")
    if not outcome.fails:
        found.add("values due")
    if outcome.consumer_changed:
        found.add("a consumer changes its value in place")
    if len(outcome.dues) > 1:
        found.add("several errors possible")
    return found
