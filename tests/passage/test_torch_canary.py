"""What weave relies on in the private parts of torch (and of two libraries). Each assertion says what breaks with it."""

from __future__ import annotations

import copy
import dis
import inspect
import pickle
import sys
import threading
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from torch import nn

from weave.graph.ports import _PASSES_THROUGH
from weave.passage import checkpointing, regions, touch

from .nets import Does, rows

ATTRIBUTE = "_compiled_call_impl"


class Probe:
    """Stands where a `Touch` does."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.calls: list[Any] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls.append((args, kwargs))
        return "from the probe"


# --- touch.py ---


def test_a_call_looks_at_the_attribute_first() -> None:
    assert touch.ATTRIBUTE == ATTRIBUTE
    net, ran = nn.Linear(3, 3), []
    net.register_forward_pre_hook(lambda m, args: ran.append("hook"))
    probe = net.__dict__[ATTRIBUTE] = Probe(net)
    x = rows()
    assert net(x, k=1) == "from the probe", "ports would never be reached: nn.Module.__call__ ignores the attribute"
    assert probe.calls[0][0][0] is x, "a port would not see the caller's own arguments"
    assert probe.calls[0][1] == {"k": 1}
    assert ran == [], "the user's hooks would run outside of a port, not inside"


def test_the_class_has_none_of_it() -> None:
    assert vars(nn.Module).get(ATTRIBUTE, 0) is None, "taking ours out of __dict__ would not leave a plain module"
    assert ATTRIBUTE not in nn.Linear(1, 1).__dict__, "a fresh module already has one: 'same __dict__' would not hold"


def test_none_in_the_instance_is_not_compiled() -> None:
    net, x = nn.Linear(3, 3), rows()
    net.__dict__[ATTRIBUTE] = None
    assert torch.equal(net(x), nn.functional.linear(x, net.weight, net.bias)), (
        "copies made during a run could not be called"
    )


def test_no_other_thread_can_run_between_the_two_reads_of_the_attribute() -> None:
    """`if self.X is not None: return self.X(...)`: were the lock given up in between, a release would leave a call of `None`.

    CPython gives it up at calls and backward jumps (and when a function starts), so there may be none between the two.
    """
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        pytest.skip("there is no lock in this interpreter: design is needed, not a canary")
    code = inspect.unwrap(nn.Module.__call__).__code__
    instructions = list(dis.get_instructions(code))
    reads = [i for i, op in enumerate(instructions) if op.argval == ATTRIBUTE]
    assert len(reads) == 2, (
        "nn.Module.__call__ reads the attribute otherwise than weave thinks; look at touch.py's head"
    )
    between = {op.opname for op in instructions[reads[0] : reads[1]]}
    yielding = {name for name in between if name.startswith(("CALL", "JUMP_BACKWARD", "RESUME", "SEND", "YIELD"))}
    assert not yielding, f"a plain call in another thread could find None between the two reads: {yielding}"


def test_call_impl_is_the_plain_call_with_hooks() -> None:
    net, seen, x = nn.Linear(3, 3), [], rows()
    net.register_forward_hook(lambda m, args, out: seen.append(out))
    net.register_full_backward_hook(lambda m, gi, go: seen.append("backward"))
    net.__dict__[ATTRIBUTE] = Probe(net)
    out = net._call_impl(x.requires_grad_())
    assert len(seen) == 1, "a touched module would run without the user's hooks"
    out.sum().backward()
    assert seen[1:] == ["backward"], "a touched module would run without the user's backward hooks"


def test_pickles_and_copies_leave_it_out() -> None:
    net = nn.Linear(3, 3)
    clean = pickle.dumps(net)
    net.__dict__[ATTRIBUTE] = Probe(net)
    assert ATTRIBUTE not in net.__getstate__(), "a model pickled during a run would carry ours along"
    assert pickle.dumps(net) == clean
    assert ATTRIBUTE not in copy.deepcopy(net).__dict__, (
        "a deep copy made during a run would call the original's weights"
    )
    assert ATTRIBUTE not in net.state_dict()


def test_compile_in_place_puts_its_own_there() -> None:
    net = nn.Linear(3, 3)
    net.compile(backend="eager")
    assert callable(net.__dict__[ATTRIBUTE]), "regions.is_compiled would not see module.compile()"
    assert regions.is_compiled(net)


def test_a_call_of_its_own_is_what_ports_refuses() -> None:
    assert "__call__" in vars(nn.Module), "every module would look as if it had a __call__ of its own"
    assert inspect.getattr_static(nn.Module, "forward") is vars(nn.Module)["forward"]
    for cls in (nn.ModuleList, nn.ModuleDict):
        assert inspect.getattr_static(cls, "forward") is vars(nn.Module)["forward"], (
            "containers would be taken for ports"
        )


def test_submodules_are_in_modules() -> None:
    net = nn.Sequential(nn.Linear(1, 1))
    assert net._modules["0"] is net[0], "the tree could not be walked past a guarded __getattr__"
    assert type(net._modules) is dict


# --- checkpointing.py ---


def test_the_reentrant_kind_runs_in_the_code_that_frames_are_compared_with() -> None:
    frames: list[Any] = []

    def part(x: torch.Tensor) -> torch.Tensor:
        frame = sys._getframe()
        while frame is not None:
            frames.append(frame.f_code)
            frame = frame.f_back
        return x * 2

    x = rows().requires_grad_()
    torch.utils.checkpoint.checkpoint(part, x, use_reentrant=True)
    assert torch.utils.checkpoint.CheckpointFunction.forward.__code__ in frames, (
        "a capture under re-entrant checkpointing would silently be without gradients"
    )
    assert checkpointing._REENTRANT is torch.utils.checkpoint.CheckpointFunction.forward.__code__


def test_the_other_kind_runs_under_a_frame_of_its_file() -> None:
    found: list[str] = []

    def part(x: torch.Tensor) -> torch.Tensor:
        found.append(checkpointing.checkpointing(None))
        return x * 2

    x = rows().requires_grad_()
    part(x)
    torch.utils.checkpoint.checkpoint(part, x, use_reentrant=False)
    torch.utils.checkpoint.checkpoint(part, x, use_reentrant=True)
    assert found == ["", "plain", "reentrant"], "an override under checkpointing would give wrong gradients, silently"


# --- passage.py ---


def test_the_graph_task_id_tells_a_backward_from_a_forward() -> None:
    ids: list[int] = []

    class Asks(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ids.append(torch._C._current_graph_task_id())
            return x * 1

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            ids.append(torch._C._current_graph_task_id())
            return gradient

    y = Asks.apply(rows().requires_grad_())
    y.sum().backward()
    assert ids[0] == -1, "every call would look as if it belonged to a backward: no port would be reached"
    assert ids[1] >= 0, "a recompute would be taken for a call of the forward: counted, captured, overridden"
    assert torch._C._current_graph_task_id() == -1


def test_the_graph_task_id_is_each_threads_own() -> None:
    ids: list[int] = []
    gate, done = threading.Event(), threading.Event()

    def other() -> None:
        gate.wait(10)
        ids.append(torch._C._current_graph_task_id())
        done.set()

    thread = threading.Thread(target=other)
    thread.start()
    y = rows().requires_grad_() * 1
    y.register_hook(lambda g: (gate.set(), done.wait(10), None)[2])
    y.sum().backward()
    thread.join()
    assert ids == [-1], "a run in one thread would be taken for another thread's backward"


def test_tensors_count_their_versions() -> None:
    x = torch.ones(3)
    before = x._version
    x.view(-1)[0] = 2
    assert x._version > before, "in-place changes would go unnoticed"
    with torch.inference_mode():
        y = torch.ones(3)
    assert y.is_inference(), "asking an inference tensor for its version would raise"
    with pytest.raises(RuntimeError):
        _ = y._version


# --- fake.py ---


def test_fakes_mix_with_real_tensors_and_keep_their_mode() -> None:
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        fake = torch.empty_strided((2, 3), (1, 2), device="cuda")
    assert isinstance(fake, FakeTensor)
    assert fake.fake_mode is mode, "fakes from elsewhere could not be told from a passage's own"
    assert (fake.device.type, fake.stride()) == ("cuda", (1, 2)), "a spec could not be made a fake of"
    with mode:
        here = torch.empty(2, 3)
    with torch.no_grad():
        out = here + torch.ones(3)
    assert isinstance(out, FakeTensor), "fake inputs would not mix with real weights outside of the mode"
    assert not isinstance(torch.ones(1), FakeTensor), "the mode would have stayed on"


# --- regions.py, stitched.py ---


def test_what_torch_compile_returns() -> None:
    net = nn.Linear(3, 3)
    compiled = torch.compile(net, backend="eager")
    assert type(compiled).__name__ == "OptimizedModule", (
        "compiled regions would not be seen, ports in them never reached"
    )
    assert compiled._modules["_orig_mod"] is net, "the way into a compiled region would not be found"
    assert regions.is_optimized(compiled)
    owner = next(cls for cls in type(compiled).__mro__ if "__call__" in vars(cls))
    assert owner is nn.Module or (owner.__module__, owner.__qualname__) in _PASSES_THROUGH, (
        "a port on a compiled module would be refused"
    )


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_dynamo_inlines_submodules_without_asking_for_the_attribute() -> None:
    """Why a region with ports inside runs eagerly. Were it otherwise, `regions` could be simpler."""
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    compiled = torch.compile(net, backend="eager")
    probe = net[0].__dict__[ATTRIBUTE] = Probe(net[0])
    assert torch.allclose(compiled(rows()), torch.tanh(net[0]._call_impl(rows())))
    assert probe.calls == []
    torch._dynamo.reset()


def test_a_function_can_be_kept_from_dynamo_without_importing_it() -> None:
    from torch._compile import _disable_dynamo

    @_disable_dynamo
    def outside(x: torch.Tensor) -> bool:
        return torch.compiler.is_dynamo_compiling()

    assert outside(rows()) is False, "a StitchedModule inside a compiled module would be traced"


def test_dynamo_can_be_told_to_leave_a_function_alone() -> None:
    """Where it can't, weave does without: a port between a hidden compiled wrapper and its forward is not reached."""
    frames: Any = torch._C._dynamo.eval_frame
    skip, default = frames._FrameAction.SKIP, frames._FrameAction.DEFAULT
    net, compiling = Does(lambda m, x: x), []

    def ours(x: torch.Tensor) -> torch.Tensor:
        compiling.append(torch.compiler.is_dynamo_compiling())
        return x * 2

    frames.set_code_exec_strategy(ours.__code__, frames._FrameExecStrategy(skip, default))
    net.__dict__[ATTRIBUTE] = ours
    assert torch.equal(torch.compile(net, backend="eager")(rows()), rows() * 2)
    assert compiling == [False], "our frames would be compiled, with warnings and graph breaks"
    torch._dynamo.reset()


def test_a_function_under_torch_compile_says_so() -> None:
    compiled = torch.compile(lambda x: x, backend="eager")
    assert hasattr(compiled, "_torchdynamo_orig_callable"), "a missed port's error would not name the compiled forward"


def test_wrappers_that_must_finish_have_the_names_they_are_known_by() -> None:
    names = {nn.parallel.DistributedDataParallel.__qualname__}
    if torch.distributed.is_available():
        from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel

        names |= {FSDPModule.__qualname__, FullyShardedDataParallel.__qualname__}
    assert names <= regions._MUST_FINISH, "an early exit would leave through a wrapper, gradients unreduced"


def test_accelerate_marks_what_it_hooks() -> None:
    hooks = pytest.importorskip("accelerate.hooks")
    net = nn.Linear(1, 1)
    hooks.add_hook_to_module(net, hooks.ModelHook())
    assert "_hf_hook" in net.__dict__, "an early exit would leave through an accelerate-hooked module"
    assert regions.finishes(net)


def test_transformers_checkpointed_layers_pass_through() -> None:
    layers = pytest.importorskip("transformers.modeling_layers")
    cls = layers.GradientCheckpointingLayer
    assert "__call__" not in vars(cls) or (cls.__module__, cls.__qualname__) in _PASSES_THROUGH, (
        "every layer of a transformers model would be refused as a port"
    )


# --- engine/profiled.py ---


@pytest.mark.parametrize("all_threads", [False, True])
def test_torch_says_whether_a_profiler_is_on(all_threads: bool) -> None:
    asked = torch.autograd.profiler
    assert asked._is_profiler_enabled is False
    config = torch._C._profiler._ExperimentalConfig(profile_all_threads=all_threads)
    elsewhere: list[Any] = []
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], experimental_config=config):
        assert asked._is_profiler_enabled is True, "nodes would have no names in a profile"
        thread = threading.Thread(target=lambda: elsewhere.append(asked._is_profiler_enabled))
        thread.start()
        thread.join()
    assert elsewhere == [True], "runs begun in other threads would have no names where all threads are profiled"
    assert asked._is_profiler_enabled is False, "every run would be named for a profiler that has gone"
