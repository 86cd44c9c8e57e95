"""Which submodules can be ports, what is said of the others, and names that are nearly right."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.small import EXT, Tiny, appearance, knot, module
from weave import ContradictionException, OutputReducer, UnknownPortException
from weave.graph.ports import list_ports, nearest, submodules
from weave.passage import passes_through

KEEPS = OutputReducer(lambda acc, new, original, i, every: original + new, requires_original_output=True)


class Net(nn.Module):
    """A list, a dict, a tied submodule under three names, blocks within blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(Tiny(), Tiny())
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
        self.heads = nn.ModuleDict({"one": nn.Linear(3, 2)})
        self.tied = self.layers[0]
        self.absent = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.encoder(x)
        for layer in self.layers:
            x = layer(x)
        return self.heads["one"](self.tied(x))


def capture(net: nn.Module, port: str, kind: str = "output") -> Any:
    m = module(net)
    ports = {"output": (m.output(port), EXT.output("y")), "input": (m.input(port), EXT.input("y"))}
    return knot((EXT.input("x"), m.input("")), ports[kind])


def override(net: nn.Module, port: str, kind: str = "output") -> Any:
    m = module(net)
    ports = {"output": (EXT.output("o"), m.output(port)), "input": (EXT.input("o"), m.input(port))}
    return knot((EXT.input("x"), m.input("")), ports[kind])


def refused(net: nn.Module, port: str, *said: str) -> None:
    """All four uses of the port are refused at the knot, naming it."""
    before = appearance(net)
    for use in (capture, override):
        for kind in ("input", "output"):
            with pytest.raises(UnknownPortException) as raised:
                use(net, port, kind)
            assert (raised.value.node, raised.value.port) == ("m", f"m.{kind}({port!r})")
            for words in (f"m.{kind}({port!r})", *said):
                assert words in str(raised.value)
    assert appearance(net) == before


# --- names ---


def test_names_are_those_of_named_modules() -> None:
    net = Net()
    due = [name for name, _ in net.named_modules(remove_duplicate=False)]
    assert [row.name for row in list_ports(net)] == due
    assert [row.name for row in module(net).ports()] == due
    assert due[0] == ""


class Rows(nn.Module):
    """Submodules at random, some of them shared."""

    def __init__(self, shape: list[Any]) -> None:
        super().__init__()
        made: list[nn.Module] = [nn.Identity()]
        for i, children in enumerate(shape):
            inner = nn.Module()
            for j, child in enumerate(children):
                inner.add_module(f"c{j}", made[child % len(made)])
            made.append(inner)
            self.add_module(f"n{i}", inner)


@given(st.lists(st.lists(st.integers(0, 20), max_size=3), max_size=5))
def test_paths_of_shared_submodules_are_all_there(shape: list[Any]) -> None:
    net = Rows(shape)
    assert list(submodules(net)) == list(net.named_modules(remove_duplicate=False))


def test_a_module_that_is_registered_in_itself_ends() -> None:
    """torch's own named_modules(remove_duplicate=False) never does."""
    net = Tiny()
    net.a.add_module("back", net)
    assert [name for name, _ in submodules(net)] == ["", "a", "b"]
    assert torch.equal(capture(net, "a")({"x": torch.ones(1, 3)}, {})["y"], net.a(torch.ones(1, 3)))


def test_rows_say_the_class_the_first_name_and_the_refusal() -> None:
    rows = {row.name: row for row in list_ports(Net())}
    assert rows[""].type == "Net"
    assert rows["encoder.0.a"].type == "Linear"
    assert rows["tied"].same_as == "layers.0"
    assert rows["layers.0"].same_as == ""
    assert {name for name, row in rows.items() if row.refusal} == {"layers", "heads"}
    assert "ModuleList is never called" in rows["layers"].refusal


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("encoder.0.aa", "encoder.0.a"),
        ("encoder.0_a", "encoder.0.a"),
        ("0.a", "encoder.0.a"),
        ("model.encoder.1", "encoder.1"),
        ("Tied", "tied"),
        ("heads.two", "heads.one"),
        (0, "encoder.0"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(wrong: Any, right: str) -> None:
    with pytest.raises(UnknownPortException, match="has no submodule") as raised:
        capture(Net(), wrong)
    assert right in raised.value.nearest
    assert repr(right) in str(raised.value)
    assert isinstance(raised.value, KeyError)


def test_an_unknown_name_like_no_other_is_answered_with_what_there_is() -> None:
    refused(Tiny(), "decoder.block.7", "has no submodule", "'a', 'b'", "ModuleTarget.ports()")


def test_an_unknown_name_is_refused_for_every_use() -> None:
    refused(Net(), "encoder.2", "Net has no submodule 'encoder.2'", "encoder.0", "encoder.1")


def test_an_attribute_that_holds_none_is_no_submodule() -> None:
    refused(Net(), "absent", "has no submodule")


@given(st.text(max_size=12), st.lists(st.text(max_size=12), max_size=8))
def test_nearest_gives_known_names_once(name: str, names: list[str]) -> None:
    found = nearest(name, list(dict.fromkeys(names)))
    assert len(found) == len(set(found)) <= 4
    assert set(found) <= set(names)
    if name in names and name:
        assert name in found


# --- what is never called, or not seen ---


@pytest.mark.parametrize("port", ["layers", "heads"])
def test_containers_are_refused(port: str) -> None:
    refused(Net(), port, "never called itself")


def test_other_modules_without_a_forward_are_refused() -> None:
    class Bag(nn.Module):
        pass

    net = Tiny()
    net.add_module("bag", Bag())
    net.add_module("weights", nn.ParameterList())
    refused(net, "bag", "a Bag is never called itself")
    refused(net, "weights", "ParameterList")


def test_a_container_with_a_forward_is_a_module_like_any() -> None:
    class Called(nn.ModuleList):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self[0](x)

    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Called([nn.Linear(3, 3)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x)

    net, x = Around(), torch.ones(1, 3)
    assert torch.equal(capture(net, "inner")({"x": x}, {})["y"], net(x))


def test_a_forward_of_the_instance_counts() -> None:
    inner = nn.Module()
    inner.forward = lambda x: x + 1  # type: ignore[assignment]
    assert capture(nn.Sequential(inner), "0")({"x": torch.ones(1)}, {})["y"] == 2


@pytest.fixture
def scripted() -> Iterator[nn.Module]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that TorchScript is on its way out
        yield torch.jit.script(nn.Sequential(nn.Linear(3, 3), nn.Tanh()))


def test_inside_a_script_module_nothing_can_be_stitched(scripted: nn.Module) -> None:
    refused(nn.Sequential(scripted, nn.ReLU()), "0.1", "'0' is a ScriptModule")
    refused(scripted, "0", "'' is a ScriptModule")
    rows = {row.name: row.refusal for row in list_ports(nn.Sequential(scripted))}
    assert not rows["0"]
    assert "ScriptModule" in rows["0.0"]
    assert "ScriptModule" in rows["0.1"]


class Twice(nn.Linear):
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return super().__call__(x) * 2


def test_a_class_with_a_call_of_its_own_is_refused() -> None:
    refused(nn.Sequential(Twice(3, 3)), "0", "Twice has a __call__ of its own", "passes_through(Twice)")
    with pytest.raises(UnknownPortException, match="Twice has a __call__ of its own"):
        capture(Twice(3, 3), "")


def test_a_subclass_of_such_a_class_is_refused_by_the_class_that_has_it() -> None:
    class Thrice(Twice):
        pass

    refused(nn.Sequential(Thrice(3, 3)), "0", "Twice has a __call__ of its own")


def test_what_is_inside_such_a_class_can_be_stitched() -> None:
    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3, 3)

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return super().__call__(x) * 2

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x)

    net, x = nn.Sequential(Around()), torch.ones(1, 3)
    assert torch.equal(capture(net, "0.inner")({"x": x}, {})["y"], net[0].inner(x))


def test_a_class_can_be_said_to_pass_through() -> None:
    @passes_through
    class Harmless(nn.Linear):
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return super().__call__(*args, **kwargs)

    assert Harmless.__name__ == "Harmless", "usable as a decorator"
    net, x = nn.Sequential(Harmless(3, 3)), torch.ones(1, 3)
    assert torch.equal(capture(net, "0")({"x": x}, {})["y"], net(x))
    assert not list_ports(net)[1].refusal


def test_traced_graphs_and_compiled_modules_pass_through() -> None:
    """Both have a `__call__` of their own. Neither is compiled here, only asked for its ports."""
    for net in (torch.fx.symbolic_trace(Tiny()), torch.compile(Tiny(), backend="eager")):
        assert not [row for row in list_ports(nn.Sequential(net)) if row.refusal]


# --- contradictions ---


def nested() -> nn.Sequential:
    return nn.Sequential(nn.Sequential(Tiny(), nn.ReLU()), nn.Linear(3, 3))


@pytest.mark.parametrize(
    "stitch",
    [
        lambda m: (m.output("0.0"), EXT.output("y")),
        lambda m: (m.input("0.0"), EXT.input("y")),
        lambda m: (m.output("0.0.a", call="all"), EXT.output("y")),
        lambda m: (EXT.output("p"), m.output("0.0.b")),
        lambda m: (EXT.input("p"), m.input("0.1")),
    ],
)
def test_a_port_inside_what_never_runs(stitch: Any) -> None:
    m = module(nested())
    inner = stitch(m)
    said = repr(next(p for p in inner if p.target is m))
    for call in (None, "all"):
        skipper = m.output("0", call=call)
        with pytest.raises(ContradictionException, match="never runs") as raised:
            knot((EXT.input("x"), m.input("")), (EXT.output("o"), skipper), inner)
        assert (raised.value.node, raised.value.port) == ("m", said)
        assert repr(skipper) in str(raised.value)
        assert "requires_original_output=True" in str(raised.value)
        assert isinstance(raised.value, ValueError)
        # Where it runs, at least once, there is no contradiction.
        for runs in (m.output("0", reducer=KEEPS), m.output("0", call=0)):
            knot((EXT.input("x"), m.input("")), (EXT.output("o"), runs), inner)


def test_an_input_of_what_never_runs() -> None:
    m = module(nested())
    stitches = [(EXT.input("x"), m.input("")), (EXT.input("i"), m.input("0"))]
    with pytest.raises(ContradictionException, match="never used") as raised:
        knot(*stitches, (EXT.output("o"), m.output("0")))
    assert raised.value.port == "m.input('0')"
    assert "m.output('0')" in str(raised.value)
    knot(*stitches, (EXT.output("o"), m.output("0", reducer=KEEPS)))
    knot(*stitches, (EXT.output("o"), m.output("0", call=1)))


def test_a_module_whose_own_output_is_overridden_has_no_use_for_its_input() -> None:
    m = module(Tiny())
    with pytest.raises(ContradictionException):
        knot((EXT.input("x"), m.input("")), (EXT.output("o"), m.output("")))
    knot((EXT.output("o"), m.output("")), (m.output(""), EXT.output("y")))


def test_the_input_of_what_is_skipped_can_be_captured() -> None:
    net, x = nested(), torch.ones(1, 3)
    m = module(net)
    stitched = knot(
        (EXT.input("x"), m.input("")),
        (EXT.output("o"), m.output("0")),
        (m.input("0"), EXT.input("i")),
        (m.output("0"), EXT.output("o")),
    )
    out = stitched({"x": x}, {"o": x + 1})
    assert out.captured_inputs["i"].args[0] is x
    assert torch.equal(out.captured_outputs["o"], x + 1)


def test_a_submodule_that_is_also_elsewhere_can_be_reached_there() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Tiny()
            self.again = self.block.a

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.again(self.block(x))

    m, net = module(Shared()), None
    net = m.module
    stitched = knot(
        (EXT.input("x"), m.input("")), (EXT.output("o"), m.output("block")), (m.output("block.a"), EXT.output("y"))
    )
    value = torch.ones(1, 3)
    assert torch.equal(stitched({"x": value}, {"o": value})["y"], net.again(value))


def test_a_contradiction_by_another_name_is_one() -> None:
    net = nested()
    net.add_module("alias", net[0])
    m = module(net)
    with pytest.raises(ContradictionException):
        knot((EXT.input("x"), m.input("")), (EXT.output("o"), m.output("alias")), (m.output("0.1"), EXT.output("y")))
