"""What a random graph is: plain data, whose `repr` is Python that rebuilds it, and the objects that one is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from .models import EVERY_MODEL, NOISY_MODELS, Lin, Wrap, labelled
from .vocabulary import BATCH, WIDTH, Adapter, Function, InputReduction, OutputReduction
from .ways import AWAITED, GIVES_AWAITABLE, PLAIN, SYNCHRONOUS

Kind = Literal["input", "output"]
Call = int | Literal["last", "all"] | None

# The first target of every graph is the external boundary.
EXTERNAL = 0


@dataclass(frozen=True)
class Target:
    """`what` says which function or constant it is, or the number of the model it holds; `way` how a function is given."""

    kind: Literal["external", "constant", "function", "module"]
    name: str = ""
    what: Any = None
    way: str = PLAIN


@dataclass(frozen=True)
class Source:
    target: int
    kind: Kind = "output"
    port: str = ""
    call: Call = None
    adapter: str | None = None


@dataclass(frozen=True)
class Destination:
    target: int
    kind: Kind = "input"
    port: str = ""
    call: Call = None
    adapter: str | None = None
    reducer: str | None = None


@dataclass(frozen=True)
class Graph:
    """Stitches are pairs of places in `sources` and `destinations`: one place is one descriptor object.

    `given_inputs` and `given_outputs` are the names that the graph takes from its caller, with the kind of value that
    the caller passes under each.
    """

    targets: tuple[Target, ...]
    sources: tuple[Source, ...]
    destinations: tuple[Destination, ...]
    stitches: tuple[tuple[int, int], ...]
    models: tuple[str, ...] = ()
    given_inputs: tuple[tuple[str, str], ...] = ()
    given_outputs: tuple[tuple[str, str], ...] = ()
    arguments: int = 1
    side: bool = False
    scale: bool = False
    early_exit: bool = True
    ignore_extra: bool = False
    withheld: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()

    @property
    def distinct_stitches(self) -> list[tuple[int, int]]:
        """The same two descriptor objects stitched again are no further stitch."""
        return list(dict.fromkeys(self.stitches))

    def into(self, target: int) -> list[tuple[int, int]]:
        return [pair for pair in self.distinct_stitches if self.destinations[pair[1]].target == target]

    def changes_in_place(self) -> bool:
        return "washed" in self.models or any(
            target.kind == "function" and target.what.startswith("in_place") for target in self.targets
        )

    @property
    def awaits(self) -> bool:
        """Whether a synchronous call needs a loop."""
        return any(target.way in AWAITED for target in self.targets)

    @property
    def refuses_a_synchronous_call(self) -> bool:
        """Whether something gives an awaitable, and nothing says beforehand that there is something to await."""
        return not self.awaits and any(target.way in GIVES_AWAITABLE for target in self.targets)

    @property
    def has_an_order(self) -> bool:
        """Whether nothing is awaited, so that one worker computes everything in the order of a synchronous call."""
        return all(target.way in SYNCHRONOUS for target in self.targets)

    def script(self) -> str:
        """The stitches as a person would write them."""

        def port(end: Source | Destination) -> str:
            target = self.targets[end.target]
            words = [repr(end.port)] if target.kind in ("external", "module") else []
            for word in ("call", "adapter", "reducer"):
                if getattr(end, word, None) is not None:
                    words.append(f"{word}={getattr(end, word)!r}")
            return f"t{end.target}.{end.kind}({', '.join(words)})"

        lines = [
            f"t{i} = {target.kind} {target.name!r} {target.what} {target.way}" for i, target in enumerate(self.targets)
        ]
        lines += [f"model {i} = {model}" for i, model in enumerate(self.models)]
        lines += [
            f"stitch(s{s}: {port(self.sources[s])}, d{d}: {port(self.destinations[d])})" for s, d in self.stitches
        ]
        return "\n".join(lines)


@dataclass
class Given:
    """What one run is called with, and the tensors in it by where they are."""

    input_overrides: dict[str, Any]
    output_overrides: dict[str, Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    places: list[tuple[Tensor, str]] = field(default_factory=list)


def tensor() -> Tensor:
    return torch.randn(BATCH, WIDTH, dtype=torch.float64)


def build_models(names: tuple[str, ...]) -> list[nn.Module]:
    built: list[nn.Module] = []
    for number, name in enumerate(names):
        if name.startswith("wrap:"):
            model: nn.Module = Wrap(built[int(name.removeprefix("wrap:"))])
        else:
            model = (EVERY_MODEL | NOISY_MODELS)[name]()
        built.append(labelled(model, f"m{number}"))
    return built


class Materials:
    """The modules, parameters, constants and inputs of a graph: the same objects for both evaluations."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.models = build_models(graph.models)
            self.functions = {
                i: labelled(Lin(), f"function{i}")
                for i, target in enumerate(graph.targets)
                if target.kind == "function" and target.what == "linear"
            }
            self.source_modules = {
                i: labelled(Lin(), f"source{i}") for i, end in enumerate(graph.sources) if end.adapter == "linear"
            }
            self.destination_modules = {
                i: labelled(Lin(), f"destination{i}")
                for i, end in enumerate(graph.destinations)
                if end.adapter == "linear"
            }
            self.reducer_modules = {
                i: labelled(Lin(), f"reducer{i}") for i, end in enumerate(graph.destinations) if end.reducer == "linear"
            }
            self.constants = {i: (tensor(), tensor()) for i, t in enumerate(graph.targets) if t.kind == "constant"}
            self.parameters = {i: nn.Parameter(tensor()) for i, t in enumerate(graph.targets) if t.what == "parameter"}
            names = [*(name for name, _ in graph.given_inputs), *(name for name, _ in graph.given_outputs)]
            self.given_leaves = {name: (tensor().requires_grad_(), tensor().requires_grad_()) for name in names}
            self.argument_leaves = [tensor().requires_grad_() for _ in range(graph.arguments)]
        self._constants_at_first = {i: (a.clone(), b.clone()) for i, (a, b) in self.constants.items()}

    def modules(self) -> list[nn.Module]:
        by_place = (self.functions, self.source_modules, self.destination_modules, self.reducer_modules)
        return [*self.models, *(module for group in by_place for module in group.values())]

    def differentiable(self) -> list[Tensor]:
        """Everything that a gradient can reach, each once."""
        found: list[Tensor] = [parameter for module in self.modules() for parameter in module.parameters()]
        found += [*self.parameters.values(), *(leaf for pair in self.given_leaves.values() for leaf in pair)]
        return list(dict.fromkeys([*found, *self.argument_leaves]))

    def constant(self, target: int, args_class: type) -> Any:
        first, second = self.constants[target]
        make: dict[str, Callable[[], Any]] = {
            "tensor": lambda: first,
            "parameter": lambda: self.parameters[target],
            "number": lambda: 1.5,
            "pair": lambda: (first, second),
            "none": lambda: None,
            "args": lambda: args_class(first, 0.5, given=second),
            "string": lambda: "ab",
        }
        return make[self.graph.targets[target].what]()

    def given(self, args_class: type, factor: float = 1.0) -> Given:
        """Fresh tensors for one run: no leaves, so that in-place changes are allowed, with the leaves behind them.

        Another `factor` gives other inputs.
        """
        places: list[tuple[Tensor, str]] = []

        def fresh(leaf: Tensor, place: str) -> Tensor:
            value = leaf * factor
            places.append((value, place))
            return value

        def value(name: str, kind: str) -> Any:
            first, second = self.given_leaves[name]
            make: dict[str, Callable[[], Any]] = {
                "tensor": lambda: fresh(first, name),
                "list": lambda: [fresh(first, name), fresh(second, f"{name}/2")],
                "tuple": lambda: (fresh(first, name), 0.5),
                "args": lambda: args_class(fresh(first, name), scale=fresh(second, f"{name}/2")),
                "number": lambda: 2.5,
                "string": lambda: "cd",
                "none": lambda: None,
            }
            return make[kind]()

        for i, pair in self.constants.items():
            for constant, at_first in zip(pair, self._constants_at_first[i], strict=True):
                if not torch.equal(constant, at_first):
                    constant.copy_(at_first)
        withheld, extra = self.graph.withheld, self.graph.extra
        inputs = {name: value(name, kind) for name, kind in self.graph.given_inputs if name not in withheld}
        outputs = {name: value(name, kind) for name, kind in self.graph.given_outputs if name not in withheld}
        kwargs: dict[str, Any] = {"side": True} if self.graph.side else {}
        if self.graph.scale:
            kwargs["scale"] = 0.5
        return Given(
            inputs | dict.fromkeys(extra, 1.0),
            outputs | dict.fromkeys(extra, 1.0),
            tuple(fresh(leaf, f"argument {i}") for i, leaf in enumerate(self.argument_leaves)),
            kwargs,
            places,
        )

    def function(self, target: int, args_class: type) -> Callable[..., Any]:
        if target in self.functions:
            return self.functions[target]
        return Function(self.graph.targets[target].what, f"function{target}", args_class)

    def source_adapter(self, source: int, args_class: type) -> Callable[[Any], Any] | None:
        kind = self.graph.sources[source].adapter
        if kind == "linear":
            return self.source_modules[source]
        return None if kind is None else Adapter(kind, args_class)

    def destination_adapter(self, destination: int, args_class: type) -> Callable[[Any], Any] | None:
        kind = self.graph.destinations[destination].adapter
        if kind == "linear":
            return self.destination_modules[destination]
        return None if kind is None else Adapter(kind, args_class)

    def reduction(self, destination: int, args_class: type) -> Callable[..., Any] | None:
        """The `reducer_fn`, None for the default."""
        end = self.graph.destinations[destination]
        if end.reducer is None:
            return None
        if end.reducer == "linear":
            return self.reducer_modules[destination]
        return InputReduction(end.reducer, args_class) if end.kind == "input" else OutputReduction(end.reducer)
