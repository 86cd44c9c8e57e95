from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from weave.demo.encoder import SentenceEncoder, block_name
from weave.demo.graphs import BlockTrainer, ScoringGraph, TrainingGraph, missed_share
from weave.demo.students import cut_all
from weave.demo.text import Batch

from .small import TINY, tiny_batch, tiny_encoder


class CountingEncoder(SentenceEncoder):
    """Counts the calls of its forward, also those that are left early."""

    def __init__(self) -> None:
        super().__init__(TINY)
        self.calls = 0

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(ids, mask)


def _counting() -> CountingEncoder:
    torch.manual_seed(0)
    encoder = CountingEncoder().eval()
    encoder.requires_grad_(False)
    return encoder


def _count_calls(module: nn.Module) -> list[int]:
    calls: list[int] = []
    module.register_forward_pre_hook(lambda *_: calls.append(1))
    return calls


def test_the_teacher_runs_exactly_once_a_batch_whatever_the_number_of_students() -> None:
    teacher = _counting()
    blocks = [_count_calls(teacher.block(i)) for i in range(TINY.layers)]
    graph = TrainingGraph(teacher, cut_all(teacher, 8), learning_rate=1e-3)
    for step in range(4):
        graph.step(tiny_batch(seed=step))
        assert teacher.calls == step + 1
        assert [len(calls) for calls in blocks] == [step + 1] * TINY.layers


def test_nothing_of_the_teacher_behind_the_last_block_runs(tiny: SentenceEncoder) -> None:
    last = tiny.layers[-1]
    behind = _count_calls(last.get_submodule("ffn_norm"))
    before = _count_calls(last.get_submodule("attention_norm"))
    TrainingGraph(tiny, cut_all(tiny, 8), learning_rate=1e-3).step(tiny_batch())
    assert (len(before), len(behind)) == (1, 0)


def test_students_are_trained_by_nodes_of_the_graph(monkeypatch: pytest.MonkeyPatch, tiny: SentenceEncoder) -> None:
    students = cut_all(tiny, 8)
    graph = TrainingGraph(tiny, students, learning_rate=1e-2)
    units = {unit["node"]: unit for unit in graph.stitched.plan.to_dict()["units"]}
    for i in range(TINY.layers):
        assert units[f"train.{i}"]["target"] == "FunctionTarget"
        assert units[f"loss.{i}"]["target"] == "FunctionTarget"
        assert units[f"student.{i}"]["target"] == "ModuleTarget"

    inside = [False]
    stepped: list[int] = []
    call, run = BlockTrainer.__call__, graph.stitched.forward

    def watched_call(self: BlockTrainer, loss: Tensor) -> float:
        assert inside[0], "a student was trained outside of a run"
        stepped.append(graph.trainers.index(self))
        return call(self, loss)

    def watched_run(*args: object) -> object:
        inside[0] = True
        try:
            return run(*args)  # type: ignore[arg-type]
        finally:
            inside[0] = False

    monkeypatch.setattr(BlockTrainer, "__call__", watched_call)
    monkeypatch.setattr(graph.stitched, "forward", watched_run)
    before = copy.deepcopy(students.state_dict())
    frozen = copy.deepcopy(tiny.state_dict())
    graph.step(tiny_batch())
    assert sorted(stepped) == list(range(TINY.layers))
    assert [trainer.steps for trainer in graph.trainers] == [1] * TINY.layers
    assert all(not torch.equal(before[name], value) for name, value in students.state_dict().items())
    assert all(torch.equal(frozen[name], value) for name, value in tiny.state_dict().items())
    # Gradients are not left behind to be added to the next step's.
    assert all(parameter.grad is None for parameter in students.parameters())


def test_a_step_equals_hand_written_training(tiny: SentenceEncoder) -> None:
    """The same two steps with hooks and a loop."""
    students, by_hand = cut_all(tiny, 8), cut_all(tiny, 8)
    graph = TrainingGraph(tiny, students, learning_rate=1e-2)
    trainers = [BlockTrainer(student, 1e-2) for student in by_hand]
    for step in range(2):
        batch = tiny_batch(seed=step)
        seen = _block_calls(tiny, batch)
        wanted = [
            trainer(missed_share(student(received), gave, batch.mask))
            for student, trainer, (received, gave) in zip(by_hand, trainers, seen, strict=True)
        ]
        assert graph.step(batch) == wanted
    for name, value in by_hand.state_dict().items():
        assert torch.equal(students.state_dict()[name], value)


def _block_calls(encoder: SentenceEncoder, batch: Batch) -> list[tuple[Tensor, Tensor]]:
    seen: list[tuple[Tensor, Tensor]] = []
    handles = [
        encoder.block(i).register_forward_hook(lambda _, args, out: seen.append((args[0], out)))
        for i in range(len(encoder.layers))
    ]
    encoder(batch.ids, batch.mask)
    for handle in handles:
        handle.remove()
    return seen


def test_losses_fall(tiny: SentenceEncoder) -> None:
    graph = TrainingGraph(tiny, cut_all(tiny, 8), learning_rate=1e-2)
    batch = tiny_batch(number=8)
    first = graph.step(batch)
    for _ in range(30):
        last = graph.step(batch)
    assert all(after < before for before, after in zip(first, last, strict=True))


def _replaced(encoder: SentenceEncoder, students: nn.ModuleList, which: list[int]) -> SentenceEncoder:
    copied = copy.deepcopy(encoder)
    for i in which:
        copied.layers[i].ffn = students[i]
    return copied


def test_scoring_equals_students_put_into_a_copy_of_the_teacher(tiny: SentenceEncoder) -> None:
    other = tiny_encoder(seed=1)
    students = cut_all(other, 8)
    found = ScoringGraph(tiny, students).embeddings(batch := tiny_batch(number=5))
    with torch.no_grad():
        wanted = {"teacher": tiny(batch.ids, batch.mask)}
        for i in range(TINY.layers):
            wanted[f"only.{i}"] = _replaced(tiny, students, [i])(batch.ids, batch.mask)
        wanted["all"] = _replaced(tiny, students, list(range(TINY.layers)))(batch.ids, batch.mask)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, msg=lambda text, name=name: f"{name}: {text}")
        assert not found[name].requires_grad


def test_replaced_blocks_and_layers_in_front_of_them_do_not_run(tiny: SentenceEncoder) -> None:
    students = cut_all(tiny, 8)
    graph = ScoringGraph(tiny, students)
    blocks = [_count_calls(tiny.block(i)) for i in range(TINY.layers)]
    layers = [_count_calls(tiny.layers[i]) for i in range(TINY.layers)]
    answers = [_count_calls(student) for student in students]
    graph.embeddings(tiny_batch())
    # Block i: in the untouched teacher, and where an earlier block alone is replaced.
    assert [len(calls) for calls in blocks] == [1 + i for i in range(TINY.layers)]
    # Layer i: the teacher, only.0 to only.i, its own link of the chain and, for the attention, the one before it.
    assert [len(calls) for calls in layers] == [1 + (i + 1) + 1 + (i > 0) for i in range(TINY.layers)]
    assert [len(calls) for calls in answers] == [1] + [2] * (TINY.layers - 1)


def test_the_modules_are_left_as_they_were(tiny: SentenceEncoder) -> None:
    students = cut_all(tiny, 8)
    before = [(type(module), sorted(vars(module))) for module in tiny.modules()]
    TrainingGraph(tiny, students, learning_rate=1e-3).step(tiny_batch())
    ScoringGraph(tiny, students).embeddings(tiny_batch())
    assert [(type(module), sorted(vars(module))) for module in tiny.modules()] == before
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in tiny.modules())


def test_the_loss_is_the_share_that_is_missed_at_real_tokens() -> None:
    teacher = torch.randn(2, 3, 4)
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    assert missed_share(teacher, teacher, mask).item() == 0
    assert missed_share(torch.zeros_like(teacher), teacher, mask).item() == pytest.approx(1)
    torch.testing.assert_close(missed_share(1.1 * teacher, teacher, mask), torch.tensor(0.01))
    padding_only = teacher.clone()
    padding_only[0, 2] = 9
    padding_only[1, 1:] = 9
    assert missed_share(padding_only, teacher, mask).item() == 0


def test_the_learning_rate_depends_on_the_steps_done_alone() -> None:
    weight = nn.Linear(2, 1)
    trainer = BlockTrainer(weight, 0.1)
    rates = []
    for _ in range(30):
        trainer(weight(torch.ones(2)).square().sum())
        rates.append(trainer.optimiser.param_groups[0]["lr"])
    assert rates[0] == pytest.approx(0.02)
    assert rates[:5] == sorted(rates[:5])
    assert rates[5:] == sorted(rates[5:], reverse=True)
    assert max(rates) < 0.1
    resumed = BlockTrainer(weight, 0.1)
    resumed.steps = 17
    resumed(weight(torch.ones(2)).square().sum())
    assert resumed.optimiser.param_groups[0]["lr"] == rates[17]


def test_both_graphs_are_drawn(tiny: SentenceEncoder) -> None:
    students = cut_all(tiny, 8)
    training = TrainingGraph(tiny, students, learning_rate=1e-3).stitched.plan.to_mermaid()
    scoring = ScoringGraph(tiny, students).stitched.plan.to_mermaid()
    assert training.startswith("flowchart")
    for name in ("teacher", "student.2", "loss.2", "train.2", block_name(2)):
        assert name in training
    for name in ("only.2", "all.0", "all.student.1"):
        assert name in scoring
