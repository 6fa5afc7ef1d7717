"""Distillation from the model of the session before."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from session_worlds import LOCAL, alternating, made
from torch import Tensor, nn

from fedtide.methods.initializers.continuous import TEACHER, distillation, relation
from fedtide.training.engine.local import TermBatch
from fedtide.training.models.base import Outputs
from support import closest, images, run_rounds, stepped, watch


def batch(student: Tensor, teacher: Tensor, labels: Tensor, old: Tensor | None = None) -> TermBatch:
    """A term's view of logits."""
    nothing: Any = None
    known = {"old_labels": old} if old is not None else {}
    return TermBatch(Outputs(student, student), labels, {TEACHER: Outputs(teacher, teacher)}, nothing, nothing, known)


def logits(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    student, teacher = 3 * torch.randn(2, 4, 5, generator=draw, dtype=torch.float64)
    return student.requires_grad_(), teacher, torch.randint(0, 5, (4,), generator=draw)


@given(st.integers(0, 1000))
def test_the_gradient_of_distillation_is_the_difference_of_probabilities(seed: int) -> None:
    student, teacher, labels = logits(seed)
    values = distillation(batch(student, teacher, labels))
    assert bool((values >= -1e-15).all())
    values.sum().backward()
    expected = student.detach().softmax(-1) - teacher.softmax(-1)
    assert closest(student.grad, expected) < 1e-12


@given(st.integers(0, 1000), st.lists(st.booleans(), min_size=5, max_size=5))
def test_relation_distillation_is_binary_cross_entropy_with_the_mixed_target(seed: int, old: list[bool]) -> None:
    student, teacher, labels = logits(seed)
    values = relation(batch(student, teacher, labels, torch.tensor(old))).detach()
    for i in range(4):
        total = 0.0
        for c in range(5):
            target = float(teacher[i, c].sigmoid()) if old[c] else float(labels[i] == c)
            p = float(student[i, c].detach().sigmoid())
            total -= target * math.log(p) + (1 - target) * math.log(1 - p)
        assert float(values[i]) == pytest.approx(total / 5, rel=1e-9)


@pytest.mark.parametrize("loss", ["distillation", "glfc"])
def test_without_strength_it_is_the_previous_initializer(loss: str) -> None:
    chosen = {"name": "continuous", "strength": 0.0, "loss": loss}
    assert torch.equal(run_rounds(made(chosen))[0].w, run_rounds(made("previous"))[0].w)


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["stacked", "threads"])
def test_a_round_follows_the_whole_loss(executor: str) -> None:
    """Both rounds of a session, by automatic differentiation of objective plus term, on top of MOON's own in the second."""
    initializer = {"name": "continuous", "strength": 0.7, "loss": "glfc"}
    local = {"epochs": 1, "batch_size": 99, "lr": 0.2, "order": "stored"}
    engine = {"executor": executor, "workers": 1}
    fed = made(initializer, alternating(2, 2), algorithm="moon", local=local, engine=engine)
    seen = watch(fed)
    run_rounds(fed)
    teacher = seen[1][1]
    for t in (2, 3):
        r, _ = seen[t]
        for row, client in enumerate(r.ids):
            shard = torch.from_numpy(fed.parts.timeline.shards[client])
            x, y = fed.parts.data.train_inputs[shard], fed.parts.data.train_labels[shard]
            start = r.w.clone().requires_grad_()
            models = {"student": start, "teacher": teacher, "global": r.w, "previous": seen[2][0].W[row]}
            z = {name: x @ w[:15].view(3, 5).T + w[15:] for name, w in models.items()}
            view = batch(z["student"], z["teacher"], y, torch.ones(3, dtype=torch.bool))  # every label is an old one
            total = torch.nn.functional.cross_entropy(z["student"], y) + 0.7 * relation(view).mean()
            if t == 3:
                near, far = (torch.cosine_similarity(z["student"], z[name]) for name in ("global", "previous"))
                total = total + torch.nn.functional.softplus(far - near).mean()
            total.backward()
            assert closest(r.W[row], r.w - 0.2 * start.grad) < 1e-12


@pytest.mark.parametrize(("start", "pilot"), [("carry", 1), ("carry", 2), ("reset", 1)])
def test_the_first_teacher_is_the_end_of_the_pilot_or_nobody(start: str, pilot: int) -> None:
    chosen = {"name": "continuous", "post_pilot_start": start}
    fed, plain = made(chosen, alternating(pilot + 2, pilot=pilot)), made("previous", alternating(pilot, pilot=pilot))
    end, _ = run_rounds(plain)
    models = []
    for t, (state, _) in enumerate(stepped(fed)):
        teachers = [term.references[TEACHER] for term in fed.parts.initializer.terms(state.initializer)]
        assert len(teachers) == (t >= pilot + (start == "reset"))
        assert all(torch.equal(teacher, models[-1]) for teacher in teachers)
        models.append(state.w.clone())
    assert torch.equal(models[pilot - 1], end.w)


def test_after_a_reset_the_teacher_may_be_uniform() -> None:
    """The first step after the pilot: cross-entropy plus kappa KL(uniform || p), by torch's own gradient."""
    chosen = {"name": "continuous", "post_pilot_start": "reset", "reset_teacher": "uniform", "strength": 0.7}
    fed = made(chosen, alternating(2, pilot=1))
    state, _ = run_rounds(fed)
    (term,) = fed.parts.initializer.terms(state.initializer)
    assert not term.references[TEACHER].any()
    logits = torch.randn(4, 3, dtype=torch.float64)
    batch = TermBatch(
        Outputs(logits, logits),
        torch.arange(4) % 3,
        {TEACHER: Outputs(logits * 0, logits * 0)},
        nn.Identity(),
        torch.tensor(0),
    )
    wanted = -math.log(3) - logits.log_softmax(1).mean(1)
    assert closest(term.loss(batch), wanted) < 1e-14


@pytest.mark.slow
def test_the_teacher_keeps_its_own_statistics() -> None:
    """A teacher with BatchNorm is the whole model of the session before, not its parameters with today's statistics."""
    fed = made("continuous", alternating(2, 2), images(), model="cnn_svhn", local={**LOCAL, "lr": 0.01})
    seen: list[tuple[Tensor, Tensor]] = []
    references = type(fed.parts.executor)._references  # type: ignore[attr-defined]

    def watched(worker: Any, place: int, term: Any, row: int, b: Tensor) -> Any:
        modules = references(worker, place, term, row, b)
        seen.append((modules[TEACHER].b.clone(), b.clone()))
        return modules

    fed.parts.executor._references = watched  # type: ignore[attr-defined]
    state, _ = run_rounds(fed, 2)
    statistics = state.b.clone()
    run_rounds(fed, state=state)
    assert len(seen) == 4
    assert all(torch.equal(teacher, statistics) for teacher, _ in seen)
    assert closest(seen[-1][1], statistics) > 1e-6


@pytest.mark.slow
def test_old_classes_are_those_of_earlier_sessions() -> None:
    world = alternating(4)
    object.__setattr__(world, "label_views", torch.tensor([[1, 1, 0], [0, 1, 1]], dtype=torch.bool).numpy())
    object.__setattr__(world, "view_of_round", world.session_of_round % 2)
    fed = made({"name": "continuous", "loss": "glfc"}, world)
    nothing = torch.zeros(3, dtype=torch.bool)
    found = [state.initializer.get("teacher_labels", nothing).tolist() for state, _ in stepped(fed)]
    assert found == [[False] * 3, [True, True, False], [True] * 3, [True] * 3]
