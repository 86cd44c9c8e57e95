"""`StitchedModule`: a knotted graph as an `nn.Module`. Its duties as a module are here; when things run is the engine's.

A run keeps all its state to itself, so one `StitchedModule` may be called from many threads at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, Self

import anyio
import torch
from torch import nn
from torch._compile import _disable_dynamo  # torch.compiler.disable, without importing dynamo until it is called

from weave.builtin import registry_of
from weave.device.state import TorchState
from weave.engine import facade
from weave.engine.boundary import Boundary, near_text
from weave.engine.frontier import Frontier
from weave.engine.inline import drive
from weave.engine.options import RunOptions
from weave.engine.profiled import profiled, profiling
from weave.engine.program import Program, bind
from weave.engine.recorded import RecordedFrontier, RecordedRun
from weave.engine.resources import Resources
from weave.engine.run import Run
from weave.engine.stream import Source, Stream
from weave.engine.tasks import Crew
from weave.engine.watch import Watch, Way, watched, watching
from weave.errors import KnotException, OverridesException, PluginException, StitchedModuleException
from weave.graph.adapters import EachCall
from weave.graph.args import InputArgs
from weave.graph.check import check_form
from weave.graph.descriptors import IODescriptor, Node, StitchDescriptor, port_text
from weave.graph.owned import owned_modules
from weave.graph.plan import Plan, build, gather, node_ids
from weave.graph.render import counted
from weave.graph.targets import ConstantTarget, Target
from weave.observe.listening import binds, listening
from weave.observe.scribe import Listener
from weave.passage.overrides import (
    PassageInputOverrides,
    PassageOutputOverrides,
    input_overrides_of,
    output_overrides_of,
)
from weave.plugins.plugin_set import PluginSet
from weave.plugins.registry import Registry
from weave.remote.ranks import Ranks
from weave.remote.session import Session


def always_false_predicate(name: str, module: nn.Module) -> bool:
    """No submodule."""
    return False


@dataclasses.dataclass
class StitchedModuleOutput:
    """What a run gave to the external boundary."""

    captured_inputs: dict[str, InputArgs]
    captured_outputs: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        """The captured output of that name, else the captured input.

        Raises:
            KeyError: where there is none, or both; then say `captured_inputs[name]` or `captured_outputs[name]`.
        """
        if name in self.captured_outputs:
            if name in self.captured_inputs:
                raise OverridesException(
                    f"{name!r} is both a captured input and a captured output; say captured_inputs[{name!r}] or "
                    f"captured_outputs[{name!r}]"
                )
            return self.captured_outputs[name]
        if name in self.captured_inputs:
            return self.captured_inputs[name]
        names = [*self.captured_outputs, *self.captured_inputs]
        elsewhere = next((rank for (_, known), rank in getattr(self, "_elsewhere", {}).items() if known == name), None)
        if elsewhere is not None:
            raise OverridesException(
                f"{name!r} is captured on rank {elsewhere}, and not on this one; needle.place(caller.output({name!r}), "
                "rank=...) says where"
            )
        raise OverridesException(f"nothing was captured as {name!r}; {near_text(name, names)}")

    def __contains__(self, name: object) -> bool:
        """Whether something was captured under that name."""
        return name in self.captured_outputs or name in self.captured_inputs

    __iter__ = None  # else Python would try 0, 1, 2 … as names


class StitchedModule(nn.Module):
    """A graph of targets, tied. Made by `Needle.knot()`; calling it runs the graph once.

    `stitched(input_overrides, output_overrides, *args, **kwargs)`: the two dicts hold what the graph takes from
    `ExternalTarget()` inputs and outputs, by name; every `ModuleTarget`'s module is called with `*args, **kwargs`.
    """

    def __init__(
        self,
        nodes: Mapping[Target, Node],
        capture_cache_outputs_predicate: Callable[[str, nn.Module], bool] = always_false_predicate,
        early_exit: bool = True,
        ignore_extra_overrides: bool = False,
        *,
        options: RunOptions = RunOptions(),
        plugins: PluginSet | Iterable[Any] | None = None,
        name: str | None = None,
        elsewhere: Mapping[tuple[str, str], int] | None = None,
    ) -> None:
        super().__init__()
        self._name = name
        self._elsewhere = dict(elsewhere or {})  # external ports that other ranks have, by kind and name
        self._options = options
        if plugins is not None and not isinstance(plugins, PluginSet):
            if not isinstance(plugins, Iterable):
                raise TypeError(
                    f"plugins takes several, or a PluginSet: plugins=[...], not a {type(plugins).__name__} by itself"
                )
            plugins = PluginSet(*plugins)
        self._plugins = plugins
        ending = gather(nodes)
        self._targets = tuple(ending)
        self._predicate = capture_cache_outputs_predicate
        self._early_exit = early_exit
        self._ignore_extra = ignore_extra_overrides
        self._constants: dict[Target, tuple[str, Any]] = {}  # its key as a parameter, and its value when tied
        ids = self._tie(ending)
        self._register(ids)
        self._read_constants()

    # --- tying ---

    def _tie(self, ending: Mapping[Target, Sequence[StitchDescriptor]]) -> Mapping[Target, str]:
        self._registry = registry = registry_of(PluginSet.installed() if self._plugins is None else self._plugins)
        ids = node_ids(ending)
        check_form(ending, ids, registry.target_type, part=bool(self._elsewhere))

        def resolve(port: IODescriptor) -> tuple[Callable[..., Any], Callable[..., Any], bool]:
            return _resolve(registry, port, ids)

        plan = build(ending, ids, resolve)
        predicate = None if self._predicate is always_false_predicate else self._predicate
        self._others: dict[tuple[str, bool], Program] = {}  # what observed runs are driven with, once there was one
        self._program: Program = bind(
            plan,
            registry.target_type,
            early_exit=self._early_exit,
            cache_predicate=predicate,
        )
        self._boundary = Boundary.of(plan)
        self._resources = Resources(self._targets, registry.target_type)
        self._ranks = Ranks.of(plan, self._name, registry.transport)
        return ids

    def _register(self, ids: Mapping[Target, str]) -> None:
        registry = self._registry
        owns: dict[type, Any] = {}

        def owned(target: Target) -> Any:
            kind = type(target)
            if kind not in owns:
                owns[kind] = registry.target_type(target).owns
            return owns[kind](target)

        keys: dict[int, str] = {}
        for key, thing in owned_modules(ids, self.plan, owned).items():
            # Straight into the dicts: register_module refuses names that are attributes ("forward" is a fine node id).
            if isinstance(thing, nn.Parameter):
                self._parameters[key] = thing
                keys[id(thing)] = key
            else:
                self._modules[key] = thing
        for target in ids:
            if isinstance(target, ConstantTarget) and id(target.value) in keys:
                self._constants[target] = (keys[id(target.value)], target.value)

    def _read_constants(self) -> None:
        """A constant that is a registered parameter is what is registered when a run reads it: torch may replace it.

        (`.to_empty()` and `load_state_dict(assign=True)` for good, `functional_call` for one call.) A value that the
        user has put into the target since comes first.
        """
        if self._constants:
            calls = list(self._program.calls)
            for index, unit in enumerate(self.plan.units):
                if unit.target in self._constants:
                    calls[index] = _reader(unit.target, self._parameters, *self._constants[unit.target])
            self._program = self._program._replace(calls=tuple(calls))

    # --- running ---

    def forward(
        self, input_overrides: dict[str, Any], output_overrides: dict[str, Any], *args: Any, **kwargs: Any
    ) -> StitchedModuleOutput:
        """Run the graph once, in this thread.

        Raises:
            OverridesException: names in the two dicts that the graph doesn't take, or that are missing.
            StitchedModuleException: what the graph wants could not be done (see `weave.errors`).
            Exception: whatever a node raises, as it is, with a note that names the node, what fed it and the run.
        """
        if torch.compiler.is_dynamo_compiling():
            # Somebody compiles a module around this one. A graph of Python calls is nothing to trace; its targets may be
            # compiled each for itself.
            return _outside_dynamo(self, input_overrides, output_overrides, args, kwargs)
        if self._program.awaits:
            away = self._ranks is not None or facade.elsewhere()
            state = TorchState(away=away)  # this thread's, which may not be the one that runs it
            return facade.call(lambda: self._run(state, input_overrides, output_overrides, args, kwargs), away=away)
        return self._run_inline(input_overrides, output_overrides, args, kwargs)

    def _run_inline(
        self, input_overrides: dict[str, Any], output_overrides: dict[str, Any], args: Any, kwargs: Any
    ) -> StitchedModuleOutput:
        inputs, outputs = self._checked(input_overrides, output_overrides)
        listeners = self._listeners()
        run = (RecordedRun if listeners else Run)(self._program, args, kwargs)
        with self._observed(run, "inline", listeners):
            self._boundary.give(run, inputs, outputs)
            drive(run, self._resources.opened)
            return self._output(self._boundary.collect(run))

    def _checked(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """What the caller brings, less what belongs to other ranks: all of them may be called alike."""
        if self._elsewhere and isinstance(inputs, Mapping) and isinstance(outputs, Mapping):
            inputs, outputs = (
                {name: value for name, value in given.items() if (kind, name) not in self._elsewhere}
                for kind, given in (("input", inputs), ("output", outputs))
            )
        self._boundary.check(inputs, outputs, ignore_extra=self._ignore_extra)
        return inputs, outputs

    def _output(self, captured: tuple[dict[str, InputArgs], dict[str, Any]]) -> StitchedModuleOutput:
        out = StitchedModuleOutput(*captured)
        if self._elsewhere:
            out.__dict__["_elsewhere"] = self._elsewhere
        return out

    async def run(
        self, input_overrides: dict[str, Any], output_overrides: dict[str, Any], *args: Any, **kwargs: Any
    ) -> StitchedModuleOutput:
        """Run the graph once, on the running loop (asyncio or trio): every node fires as soon as what it needs is there.

        Modules and plain functions compute in worker threads, async functions are awaited, and the loop never blocks.
        Raises as a synchronous call does; `TimeoutError` after `RunOptions.timeout`; an `ExceptionGroup` where several
        nodes failed independently.
        """
        state = TorchState(threads=not self._program.alone)
        return await self._run(state, input_overrides, output_overrides, args, kwargs)

    async def _run(
        self,
        state: TorchState,
        input_overrides: dict[str, Any],
        output_overrides: dict[str, Any],
        args: Any,
        kwargs: Any,
        item: tuple[int, int] | None = None,
    ) -> StitchedModuleOutput:
        if self._ranks is None:
            return await self._run_here(state, input_overrides, output_overrides, args, kwargs, None)
        # First of all, so that a run that is refused here counts as one, on every rank.
        async with self._ranks.run(self._options.run_key, item) as session:
            return await self._run_here(state, input_overrides, output_overrides, args, kwargs, session)

    async def _run_here(
        self,
        state: TorchState,
        input_overrides: dict[str, Any],
        output_overrides: dict[str, Any],
        args: Any,
        kwargs: Any,
        session: Session | None,
    ) -> StitchedModuleOutput:
        inputs, outputs = self._checked(input_overrides, output_overrides)
        if state.foreign:
            if self._program.awaits:
                raise StitchedModuleException(
                    f"the torch modes {', '.join(state.foreign)} are on in this thread and can't go along into others, and "
                    "the graph has async nodes, so it can't run in this thread alone: turn the modes off around the run"
                )
            return self._run_inline(input_overrides, output_overrides, args, kwargs)
        listeners = self._listeners()
        run = (RecordedFrontier if listeners else Frontier)(self._program, args, kwargs, self._options.workers)
        with self._observed(run, "tasks", listeners):
            limit = self._options.timeout
            if limit is None:
                return await self._work(run, state, inputs, outputs, session)
            with anyio.move_on_after(limit):
                return await self._work(run, state, inputs, outputs, session)
            # Here only where the scope caught its own cancellation.
            raise TimeoutError(f"the run was not over within {limit:g} s (RunOptions.timeout), and was stopped")

    async def _work(
        self,
        run: Frontier,
        state: TorchState,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        session: Session | None,
    ) -> StitchedModuleOutput:
        boundary = self._boundary
        crew = Crew(run, state, self._options.workers, self._resources.opened)
        if session is not None:
            session.joins(crew.call_off, lambda: run.failed_at)
        if run.program.adapts_given:
            run.queue(await crew.aside(boundary.give, run, inputs, outputs))
        else:
            run.queue(boundary.give(run, inputs, outputs))
        await crew.work()
        if run.program.adapts_taken:
            return self._output(await crew.aside(boundary.collect, run))
        return self._output(boundary.collect(run))

    def _listeners(self) -> tuple[Listener, ...]:
        """Who hears of a run off its path."""
        everywhere, own = listening(), self._options.listeners
        return (*everywhere, *own) if own else everywhere

    def _observed(
        self, run: Run, driver: Literal["inline", "tasks"], listeners: tuple[Listener, ...]
    ) -> AbstractContextManager[None]:
        """Around a run: whoever wants to hears of it. A run that nobody observes keeps the plain program."""
        around: AbstractContextManager[None] = nullcontext()
        way: Way = "plain"
        if listeners or self._registry.observers or self._options.in_line:
            given = [(f"RunOptions ({type(observer).__name__})", observer) for observer in self._options.in_line]
            watch = Watch(run, driver, [*self._registry.observers, *given], listeners, bind=binds(listeners))
            around, way = watch.around(), watch.way
        named = profiling()
        if named or way != "plain":
            run.program = self._program_for(way, named)
        return around

    def _program_for(self, way: Way, named: bool) -> Program:
        program = self._others.get((way, named))
        if program is None:
            program = self._program if way == "plain" else watched(self._program, watching.get, way)
            program = self._others[way, named] = profiled(program) if named else program
        return program

    def stream(self, source: Source, in_flight: int = 4) -> Stream:
        """Runs over a source of inputs, at most `in_flight` under way, results in order.

        `async with stitched.stream(source) as results: async for out in results: ...`, or both without `async`. An item
        is a mapping (the input overrides) or a tuple (the positional arguments of `run`).
        """

        number = 0 if self._ranks is None else self._ranks.stream()

        def run(
            index: int, state: TorchState | None, inputs: Any, outputs: Any, *args: Any, **kwargs: Any
        ) -> Awaitable[StitchedModuleOutput]:
            state = state or TorchState(threads=not self._program.alone)
            return self._run(state, inputs, outputs, args, kwargs, (number, index))

        return Stream(run, source, in_flight)

    def with_options(self, **changes: Any) -> StitchedModule:
        """The same graph with other `RunOptions`: a view that shares everything else, parameters too."""
        view = type(self).__new__(type(self))
        view.__dict__.update(self.__dict__)
        view.__dict__["_options"] = dataclasses.replace(self._options, **changes)
        return view

    def close(self) -> None:
        """Let go of the other ranks: their runs that need this one fail, and with the last graph the link closes.

        A graph without remote targets holds nothing that would need closing. Idempotent; not needed before the program
        ends.
        """
        if self._ranks is not None:
            self._ranks.close()

    def __enter__(self) -> Self:
        """Open what target types need opened; their nodes find it in `firing.resources`."""
        self._resources.enter()
        return self

    def __exit__(self, *raised: Any) -> bool | None:
        return self._resources.leave(*raised)

    async def __aenter__(self) -> Self:
        """`with` for resources that are opened asynchronously; it opens the others too, in this task."""
        await self._resources.aenter()
        return self

    async def __aexit__(self, *raised: Any) -> bool | None:
        return await self._resources.aleave(*raised)

    # --- what the seed's API also offers ---

    def create_input_overrides(self, values_to_node: dict[IODescriptor, Any]) -> PassageInputOverrides:
        """Values for input ports of one node, reduced, by port name (a function of the original where reducers look)."""
        registry, ids = self._registry, self.plan.nodes
        return input_overrides_of(values_to_node, lambda port: _resolve(registry, port, ids))

    def create_output_overrides(self, values_to_node: dict[IODescriptor, Any]) -> PassageOutputOverrides:
        """Values for output ports of one node, reduced, by port name (a function of the original where one requires it)."""
        registry, ids = self._registry, self.plan.nodes
        return output_overrides_of(values_to_node, lambda port: _resolve(registry, port, ids))

    # --- being an nn.Module ---

    @property
    def plan(self) -> Plan:
        """The graph as it runs. It prints and compares, and has `to_dict()` and `to_mermaid()`."""
        return self._program.plan

    def describe(self) -> str:
        """The graph as text: every unit in the order in which one thread fires them, with what feeds it."""
        return str(self.plan)

    def __repr__(self) -> str:
        nodes = list(dict.fromkeys(unit.node for unit in self.plan.units))
        shown = ", ".join(nodes[:6]) + (f", and {len(nodes) - 6} more" if len(nodes) > 6 else "")
        takes = ", ".join(
            f"{kind} {name!r}" for kind, names in self._boundary.takes.items() for name in sorted(names, key=str)
        )
        gives = ", ".join(f"{port.kind} {port.name!r}" for port in self._boundary.gives)
        return (
            f"StitchedModule({counted(len(nodes), 'node')}, {counted(len(self.plan.edges), 'stitch', 'es')}: {shown}\n"
            f"  takes {takes or 'nothing'}\n"
            f"  gives {gives or 'nothing'}\n"
            ")"
        )

    def _repr_html_(self) -> str:
        return self.plan._repr_html_()

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()  # type: ignore[no-untyped-call]
        # The plan is made anew from the stitches, which pickle and copy with the modules that they are about.
        state["_stitches"] = [edge.stitch for edge in self.plan.edges]
        for key in ("_program", "_others", "_boundary", "_registry", "_resources", "_ranks"):
            state.pop(key, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        stitches = state.pop("_stitches")
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        ending: dict[Target, list[StitchDescriptor]] = {target: [] for target in self._targets}
        for stitch in stitches:
            ending[stitch.destination_descriptor.target].append(stitch)
        self._tie(ending)
        self._read_constants()


def _reader(target: Any, parameters: dict[str, Any], key: str, tied: Any) -> Callable[[], Any]:
    return lambda: parameters[key] if target.value is tied else target.value


@_disable_dynamo
def _outside_dynamo(
    stitched: StitchedModule, inputs: Any, outputs: Any, args: Any, kwargs: Any
) -> StitchedModuleOutput:
    return stitched._run_inline(inputs, outputs, args, kwargs)


def _resolve(
    registry: Registry, port: IODescriptor, ids: Mapping[Target, str]
) -> tuple[Callable[..., Any], Callable[..., Any], bool]:
    """A port's adapter, reducer and whether the reducer needs the original; names looked up."""
    try:
        return _looked_up(registry, port, ids)
    except PluginException as error:
        said = port_text(port, ids.get(port.target))
        raise PluginException(f"{said}: {error}", name=error.name, nearest=error.nearest) from None


def _looked_up(
    registry: Registry, port: IODescriptor, ids: Mapping[Target, str]
) -> tuple[Callable[..., Any], Callable[..., Any], bool]:
    adapter: Any = port.adapter
    if isinstance(adapter, str):
        named = registry.adapter(adapter, port.kind)
        adapter = EachCall(named.fn) if named.each_call else named.fn
    if not callable(adapter):
        raise KnotException(
            f"the adapter of {port_text(port, ids.get(port.target))} is {adapter!r}: it must be a function of one value, "
            "an nn.Module or a registered name"
        )
    reducer = port.reducer
    if isinstance(reducer, str):
        definition = registry.reducer(reducer, port.kind)
        return adapter, definition.fn, definition.requires_original_output
    return adapter, reducer.reducer_fn, getattr(reducer, "requires_original_output", False)  # type: ignore[union-attr]
