"""MOON: identities with FedAvg, bounds of the contrastive term, and the memory of previous models."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedtide.core import plugins
from fedtide.federation.federation import Federation
from fedtide.federation.state import initial_state
from fedtide.methods.algorithms.base import Term
from fedtide.training.engine.local import TermBatch
from fedtide.training.models.base import Outputs
from support import (
    closest,
    deal,
    federation,
    largest_gap,
    run_rounds,
    settings,
    steady,
    timeline,
    trajectory,
    vectors,
    watch,
)

LOCAL = {"epochs": 2, "batch_size": 3, "lr": 0.2, "momentum": 0.9}
SIZES = (5, 2, 7)
EXECUTORS = pytest.mark.parametrize("executor", ["threads", "stacked"])


def term(mu: float = 1.0, temperature: float = 1.0) -> Term:
    """The contrastive term of one client that has a previous model."""
    cls = plugins.load("algorithms", "moon")
    r = SimpleNamespace(w=torch.zeros(1), client=SimpleNamespace(previous=torch.zeros(1, 1)), seen=torch.ones(1, 1))
    (made,) = cls(cls.Settings(mu=mu, temperature=temperature)).terms(r)  # type: ignore[attr-defined]
    return made  # type: ignore[no-any-return]


def contrast(z: Tensor, near: Tensor, far: Tensor, temperature: float = 1.0) -> Tensor:
    """Its value [B] for features of the model, of the global model and of the previous one."""
    references = {name: Outputs(f, f) for name, f in (("global", near), ("previous", far))}
    unused = torch.zeros(len(z), dtype=torch.int64)
    return term(temperature=temperature).loss(TermBatch(Outputs(z, z), unused, references, torch.nn.Identity(), unused))


def features(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def test_the_term_is_one_function_so_that_it_is_traced_once() -> None:
    fed = federation(settings(algorithm="moon", local=LOCAL), steady(SIZES, 3), vectors())
    losses = []
    terms = fed.parts.algorithm.terms
    fed.parts.algorithm.terms = lambda r: losses.extend(made := terms(r)) or made  # type: ignore[method-assign, func-returns-value]
    run_rounds(fed)
    assert len(losses) == 3
    assert len({made.loss for made in losses}) == 1


@EXECUTORS
def test_a_client_without_a_previous_model_trains_as_in_fedavg(executor: str) -> None:
    """Client 2 joins in the second round; client 1 has a model of the first."""

    def made(name: str) -> Federation:
        chosen = settings(algorithm=name, local=LOCAL, engine={"executor": executor, "workers": 1})
        return federation(chosen, steady(SIZES, 2), vectors(), cohorts=[[0, 1], [1, 2]])

    contrastive, plain = made("moon"), made("fedavg")
    start = initial_state(plain.parts)
    seen = watch(contrastive), watch(plain)
    run_rounds(contrastive)
    start.round, start.w = 1, seen[0][0][1]
    run_rounds(plain, state=start)
    ours, theirs = seen[0][1][0].W, seen[1][0][0].W
    assert torch.equal(ours[1], theirs[1])
    assert closest(ours[0], theirs[0]) > 1e-4


def test_every_client_remembers_its_own_last_model() -> None:
    fed = federation(settings(algorithm="moon", local=LOCAL), steady(SIZES, 3), vectors(), cohorts=[[0, 1], [1], [1]])
    seen = watch(fed)
    state, _ = run_rounds(fed)
    previous = state.memory["previous"]
    assert torch.equal(previous[0], seen[0][0].W[0])
    assert torch.equal(previous[1], seen[2][0].W[0])
    assert not previous[2].any()


@pytest.mark.parametrize(("on_session_start", "plain"), [("reset", True), ("keep", False)])
def test_previous_models_are_forgotten_between_sessions_unless_kept(on_session_start: str, plain: bool) -> None:
    everybody = {client: client for client in range(len(SIZES))}
    world = timeline(deal(SIZES), [everybody] * 3, session_of_round=[0, 0, 1])
    common = {"local": LOCAL, "client_state": {"on_session_start": on_session_start}}
    ours, state = trajectory("moon", world, vectors(), **common)
    fed = federation(settings(algorithm="fedavg", **common), world, vectors())
    start = initial_state(fed.parts)
    start.round, start.w = 2, ours[1].clone()
    reference, _ = run_rounds(fed, state=start)
    assert torch.equal(ours[2], reference.w) is plain
    assert state.memory["previous"].any(1).all()
    undivided, _ = trajectory("moon", timeline(deal(SIZES), [everybody] * 3), vectors(), **common)
    assert torch.equal(ours[2], undivided[2]) is not plain


@given(
    st.lists(st.floats(-3, 3), min_size=12, max_size=12),
    st.sampled_from([0.1, 0.5, 1.0, 2.0]),
)
def test_the_term_is_a_softmax_over_two_similarities(values: list[float], temperature: float) -> None:
    z, near, far = torch.tensor(values, dtype=torch.float64).view(3, 2, 2).unbind()
    cosines = [
        (z * other).sum(1) / (z.norm(dim=1).clamp(min=1e-8) * other.norm(dim=1).clamp(min=1e-8))
        for other in (near, far)
    ]
    found = contrast(z, near, far, temperature)
    expected = -torch.log_softmax(torch.stack(cosines) / temperature, dim=0)[0]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    low, high = (math.log1p(math.exp(sign * 2 / temperature)) for sign in (-1, 1))
    assert bool(((found >= low - 1e-12) & (found <= high + 1e-12)).all())


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_both_bounds_are_attained(temperature: float) -> None:
    z = features([3.0, 4.0])
    low, high = (contrast(z, sign * z, -sign * z, temperature).item() for sign in (1, -1))
    assert low == pytest.approx(math.log1p(math.exp(-2 / temperature)), abs=1e-14)
    assert high == pytest.approx(math.log1p(math.exp(2 / temperature)), abs=1e-14)


def test_equal_reference_models_give_ln_2_and_no_gradient() -> None:
    z = features([1.0, -2.0, 0.5], [0.3, 0.1, 4.0]).requires_grad_()
    same = features([0.4, 1.0, 1.0], [-1.0, 0.2, 0.0])
    value = contrast(z, same, same)
    (gradient,) = torch.autograd.grad(value.sum(), z)
    assert torch.equal(value, torch.full_like(value, math.log(2)))
    assert float(gradient.abs().max()) < 1e-16


def test_the_gradient_turns_features_toward_the_global_model() -> None:
    """At right angles to both references: dl/dz = -(z_g - z_p) / (2 tau |z|) for unit z_g, z_p."""
    z = features([0.0, 0.0, 2.0]).requires_grad_()
    near, far = features([1.0, 0.0, 0.0]), features([0.0, 1.0, 0.0])
    (gradient,) = torch.autograd.grad(contrast(z, near, far, 0.5).sum(), z)
    torch.testing.assert_close(gradient, -(near - far) / (2 * 0.5 * 2.0), rtol=0, atol=1e-15)


@pytest.mark.parametrize(
    "algorithm", ["fedavg", {"name": "fedprox", "mu": 0.3}, "moon", "fedacg", "scaffold", "scaffold_released"]
)
def test_identical_clients_are_one_client(algorithm: Any) -> None:
    local = {**LOCAL, "order": "stored"}
    alone, together = (
        trajectory(algorithm, timeline(deal([6]), [dict.fromkeys(range(count), 0)] * 4), vectors(6), local=local)[0]
        for count in (1, 3)
    )
    assert largest_gap(alone, together) < 1e-14
