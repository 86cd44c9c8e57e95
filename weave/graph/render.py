"""A plan as text, as plain data and as a Mermaid flowchart."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from weave.graph.descriptors import IODescriptor, has_name, target_text
from weave.graph.reducers import InputReducer, OutputReducer
from weave.graph.targets import ConstantTarget, ExternalTarget, FunctionTarget, ModuleTarget, RemoteTarget, Target

if TYPE_CHECKING:
    from weave.graph.picture import Heat
    from weave.graph.plan import Edge, Plan


def callable_name(function: Callable[..., Any] | str | None) -> str:
    """How a function is called in print: its name, a module's class, a registered name as it was given."""
    if isinstance(function, str):
        return function
    if isinstance(function, InputReducer | OutputReducer):
        return callable_name(function.reducer_fn)
    name = getattr(function, "__qualname__", None) or type(function).__name__
    return str(name).split("<locals>.")[-1]


def counted(number: int, one: str, plural: str = "s") -> str:
    """`1 node`, `2 nodes`."""
    return f"{number} {one}{'' if number == 1 else plural}"


def what(target: Target) -> str:
    """One word or two on what a target is."""
    if isinstance(target, ModuleTarget):
        return f"module {type(target.module).__name__}"
    if isinstance(target, FunctionTarget):
        return f"function {callable_name(target.function)}"
    if isinstance(target, ConstantTarget):
        return f"constant {type(target.value).__name__}"
    if isinstance(target, RemoteTarget | ExternalTarget):
        return target_text(target)
    return type(target).__name__


def _details(edge: Edge) -> list[str]:
    source, port = edge.stitch.source_descriptor, edge.port
    said = [f"adapter={callable_name(d.adapter)}" for d in (source, port) if not _default(d)]
    if edge.reducer is not None:
        said.append(f"reducer={callable_name(port.reducer)}")
    return said


def _default(port: IODescriptor) -> bool:
    return callable_name(port.adapter) in ("default_input_adapter_fn", "default_output_adapter_fn")


def _lines(plan: Plan, entries: Iterable[Edge]) -> Iterable[str]:
    for edge in entries:
        details = _details(edge)
        end = f"  ({', '.join(details)})" if details else ""
        yield f"    {plan.text(edge.port)} <- {plan.source_text(edge.slot)}{end}"


def plan_text(plan: Plan, most: int = 200) -> str:
    """The units in the order in which one thread fires them, each with what feeds it. At most `most` units in full."""
    lines = [f"{counted(len(plan.units), 'unit')}, {counted(len(plan.edges), 'stitch', 'es')}"]
    for unit in plan.units[:most]:
        lines.append(f"  {unit.node}: {what(unit.target)}")
        lines.extend(_lines(plan, unit.entries))
    if len(plan.units) > most:
        lines.append(f"  ... and {len(plan.units) - most} more units")
    if plan.taken:
        lines.append("  to the caller:")
        lines.extend(_lines(plan, plan.taken[:most]))
        if len(plan.taken) > most:
            lines.append(f"    ... and {len(plan.taken) - most} more")
    return "\n".join(lines)


def plan_dict(plan: Plan) -> dict[str, Any]:
    """The plan as plain data."""

    def port(descriptor: IODescriptor) -> dict[str, Any]:
        said: dict[str, Any] = {
            "node": plan.nodes[descriptor.target],
            "kind": descriptor.kind,
            "name": descriptor.name,
        }
        if descriptor.call is not None:
            said["call"] = descriptor.call
        if not _default(descriptor):
            said["adapter"] = callable_name(descriptor.adapter)
        return said

    stitches = []
    for edge in plan.edges:
        stitch = {"source": port(edge.stitch.source_descriptor), "destination": port(edge.port)}
        if edge.reducer is not None:
            stitch["destination"]["reducer"] = callable_name(edge.port.reducer)
        if edge.requires_original:
            stitch["destination"]["requires_original_output"] = True
        stitches.append(stitch)
    units = [{"node": u.node, "target": type(u.target).__name__, "role": u.role} for u in plan.units]
    return {"units": units, "stitches": stitches}


def mermaid(plan: Plan, heat: Heat | None = None, outlined: Collection[str] = (), ranks: Mapping[str, int] = {}) -> str:
    """A Mermaid flowchart: modules as boxes, functions rounded, constants as flags, the caller and ranks as stadiums.

    `heat` colours nodes and says a number in each; `outlined` nodes get a thick edge. See `weave.graph.picture`.
    `ranks`: by node, the rank that computes it; each rank's nodes stand in a frame.
    """
    heat = heat or {}
    names: dict[str, str] = {}
    lines = ["flowchart TD"]
    drawn: dict[int | None, list[str]] = {}

    def declare(node: str, target: Target, label: str) -> None:
        key = names[node] = f"n{len(names)}"
        text = f'"{label}"'
        if isinstance(target, ModuleTarget):
            shape = f"[{text}]"
        elif isinstance(target, FunctionTarget):
            shape = f"({text})"
        elif isinstance(target, ConstantTarget):
            shape = f">{text}]"
        elif isinstance(target, RemoteTarget):
            shape = f"([{text}]):::remote"
        else:
            shape = f"[[{text}]]"
        drawn.setdefault(ranks.get(node), []).append(f"    {key}{shape}")

    for unit in plan.units:
        kind = what(unit.target)
        label = _escaped(unit.node)
        if not isinstance(unit.target, RemoteTarget):
            label = f"{label}<br/><i>{_escaped(kind)}</i>"
        if unit.node in heat:
            label = f"{label}<br/><b>{_escaped(heat[unit.node][1])}</b>"
        declare(unit.node, unit.target, label)
    lines += drawn.pop(None, [])
    for rank, nodes in sorted(drawn.items(), key=str):
        lines += [f'    subgraph rank{rank}["rank {rank}"]', *(f"    {node}" for node in nodes), "    end"]
    # The caller is drawn twice, above and below, so that the picture has no loop and lays out from top to bottom.
    if plan.given:
        lines.append('    given(["caller"]):::caller')
    if plan.taken:
        lines.append('    taken(["caller"]):::caller')
    for edge in plan.edges:
        producer, consumer = plan.producers[edge.slot], plan.consumers[edge.slot]
        source = "given" if producer < 0 else names[plan.units[producer].node]
        end = "taken" if consumer < 0 else names[plan.units[consumer].node]
        label = link_label(edge.stitch.source_descriptor, edge.port)
        lines.append(f'    {source} -->|"{_escaped(label)}"| {end}' if label else f"    {source} --> {end}")
    lines.append("    classDef caller stroke-dasharray: 4 2")
    if any(isinstance(unit.target, RemoteTarget) for unit in plan.units):
        lines.append("    classDef remote stroke-dasharray: 2 2")
    lines.extend(_mermaid_styles(names, heat, outlined))
    return "\n".join(lines) + "\n"


def _mermaid_styles(names: Mapping[str, str], heat: Heat, outlined: Collection[str]) -> Iterable[str]:
    """A `style` line for each coloured or outlined node, the same colours as on a light page of SVG."""
    from weave.graph.picture import palette, step, written

    for node, key in names.items():
        said = []
        if node in heat:
            fill, text = palette()[step(heat[node][0])]
            said += [f"fill:{written(fill)}", f"color:{written(text)}"]
        if node in outlined:
            said.append("stroke-width:4px")
        if said:
            yield f"    style {key} {','.join(said)}"


def link_label(source: IODescriptor, destination: IODescriptor) -> str:
    """The ports of a stitch, of those targets that have several: `out layers.3 → in`."""
    return " → ".join(filter(None, (_port_label(source), _port_label(destination))))


def _port_label(port: IODescriptor) -> str:
    if not has_name(port):
        return ""
    side = "in" if port.kind == "input" else "out"
    name = f" {port.name}" if port.name else ""
    call = "" if port.call is None else f" call {port.call}"
    return f"{side}{name}{call}"


def _escaped(text: str) -> str:
    text = "".join(character if character.isprintable() else " " for character in text)
    for character, entity in (
        ("#", "#35;"),
        ('"', "#quot;"),
        ("<", "#lt;"),
        (">", "#gt;"),
        ("|", "#124;"),
        ("`", "#96;"),  # a label that begins with one would be Markdown
    ):
        text = text.replace(character, entity)
    return text
