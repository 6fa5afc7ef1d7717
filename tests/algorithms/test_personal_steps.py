"""Clients with models of their own that a local step trains (pFedMe, APFL), or that a few steps make (Per-FedAvg)."""

from typing import Any

import pytest
import torch
from torch import Tensor

from fedtide.federation.federation import Federation
from fedtide.federation.scoring.served import ServedModels
from fedtide.federation.types import RunState
from fedtide.settings.reading.yaml_files import read_value
from support import (
    closest,
    deal,
    federation,
    images,
    largest_gap,
    run_rounds,
    settings,
    steady,
    timeline,
    trajectory,
    vectors,
    watch,
)

SIZES = (5, 2, 7, 4)
COHORTS = [[0, 2], [1, 2], [2], [0, 1], [1]]  # client 3 is never drawn
LOCAL = {"epochs": 2, "batch_size": 3, "lr": 0.2, "weight_decay": 0.01, "clip": 0.5}
EXECUTORS = ["threads", "stacked"]


def named(name: str, **values: Any) -> dict[str, Any]:
    return {"name": name, **values}


def trained(algorithm: Any, executor: str = "threads", **chosen: Any) -> tuple[Federation, RunState]:
    """A federation after its rounds."""
    values = {"local": LOCAL, "engine": {"executor": executor, "workers": 1}, **chosen}
    fed = federation(settings(algorithm=algorithm, **values), steady(SIZES, len(COHORTS)), vectors(), cohorts=COHORTS)
    return fed, run_rounds(fed)[0]


def served(fed: Federation, state: RunState) -> Tensor:
    """The models [K, d] that clients are served after the last round."""
    server = ServedModels(fed.parts)
    return server.rows(state, state.round - 1, slice(None))[0]


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(
    ("alpha", "expected"), [(0.0, lambda v, w: w), (1.0, lambda v, w: v), (0.5, lambda v, w: (v + w) / 2)]
)
def test_apfl_serves_the_mixture_and_others_the_global_model(alpha: float, expected: Any, executor: str) -> None:
    fed, state = trained(named("apfl", alpha=alpha), executor)
    models = served(fed, state)
    assert torch.equal(models[:3], expected(state.memory["v"][:3], state.w.expand(3, -1)))
    assert torch.equal(models[3], state.w)
    assert closest(state.memory["v"][0], state.w) > 1e-3


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("mix", ["before", "after"])
def test_apfl_with_alpha_one_trains_alone(mix: str, executor: str) -> None:
    """From the session's first model on each client's own batches, whichever y is mixed in with weight zero."""
    _, ours = trained(named("apfl", alpha=1.0, mix=mix, newcomers="initial"), executor)
    _, alone = trained("local", executor)
    assert closest(ours.memory["v"], alone.memory["own"]) < 1e-14


def test_a_learned_alpha_follows_the_slope_of_the_first_batch(quadratics: Any) -> None:
    """Losses a/2 |theta - z|^2: the slope at the mixture is a <v - y, m - z>."""
    a, z, rate, eta = 0.5, torch.tensor([1.0, -2.0], dtype=torch.float64), 0.2, 0.3
    data, chosen = quadratics([4], [a], [z.tolist()])
    local = {"steps": 2, "batch_size": 4, "lr": rate}
    algorithm = named("apfl", adaptive="paper", alpha_lr=eta)
    _, state = trajectory(
        algorithm, steady((4,), 3, classes=2), data, local=local, engine={"executor": "threads"}, **chosen
    )
    w = v = torch.zeros(2, dtype=torch.float64)
    alpha = 0.5
    for t in range(3):
        y = w
        v = w if t == 0 else v
        for step in range(2):
            m = alpha * v + (1 - alpha) * y
            slope = float(((v - y) * a * (m - z)).sum())
            y, v = y - rate * a * (y - z), v - rate * alpha * a * (m - z)
            alpha = alpha - eta * slope if step == 0 else alpha
        w = y
    assert abs(float(state.memory["alpha"][0]) - alpha) < 1e-14
    assert abs(alpha - 0.5) > 1e-4
    assert closest(state.memory["v"][0], v) < 1e-14


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("mix", ["before", "after"])
def test_the_training_loss_of_apfl_is_that_of_y(mix: str, executor: str) -> None:
    losses = []
    for algorithm in (named("apfl", mix=mix), "fedavg"):
        chosen = settings(algorithm=algorithm, local=LOCAL, engine={"executor": executor, "workers": 1})
        _, records = run_rounds(federation(chosen, steady(SIZES, 5), vectors(), cohorts=COHORTS))
        losses.append([record.row["train_loss"] for record in records])
    assert losses[0] == losses[1]


@pytest.mark.parametrize("adaptive", ["paper", "release"])
def test_alpha_stays_a_share(adaptive: str) -> None:
    _, state = trained(named("apfl", adaptive=adaptive, alpha_lr=1e3))
    shares = state.memory["alpha"][:3, 0]
    assert bool(((shares == 0) | (shares == 1)).any())
    assert bool(((shares >= 0) & (shares <= 1)).all())


@pytest.mark.parametrize("on_leave", ["discard", "keep"])
def test_a_client_that_left_returns_without_its_model_and_share_or_with_both(on_leave: str) -> None:
    world = timeline(deal(SIZES), [{0: 0, 1: 1}, {1: 1}, {0: 0, 1: 1}])
    algorithm = named("apfl", adaptive="paper", alpha_lr=1.0, alpha=0.25)
    chosen = settings(algorithm=algorithm, local=LOCAL, client_state={"on_leave": on_leave})
    fed = federation(chosen, world, vectors(), cohorts=[[0, 1], [1], [1]])
    state, _ = run_rounds(fed)
    v, alpha = state.memory["v"][0], state.memory["alpha"][0]
    expected = alpha * v + (1 - alpha) * state.w if on_leave == "keep" else state.w
    assert bool(v.any()) is bool(alpha.any()) is (on_leave == "keep")
    models = served(fed, state)
    assert torch.equal(models[0], expected)
    assert closest(models[1], state.w) > 1e-3


def test_no_is_a_word_in_settings_files() -> None:
    chosen: Any = settings(algorithm=named("apfl", adaptive=read_value("no"))).algorithm
    assert chosen.adaptive == "no"


@pytest.mark.parametrize("executor", EXECUTORS)
def test_pfedme_without_a_server_step_leaves_the_model(executor: str) -> None:
    fed, state = trained(named("pfedme", server_lr=0.0), executor)
    assert torch.equal(state.w, fed.parts.w0)
    assert closest(served(fed, state)[0], state.w) > 1e-3


@pytest.mark.parametrize("executor", EXECUTORS)
def test_many_steps_of_theta_find_the_proximal_point(executor: str, quadratics: Any) -> None:
    """Of a/2 |theta - z|^2 + lambda/2 |theta - y|^2, and y moves toward it."""
    a, z, lambda_, rate = 0.5, torch.tensor([1.0, -2.0], dtype=torch.float64), 4.0, 0.05
    data, chosen = quadratics([4], [a], [z.tolist()])
    local = {"steps": 3, "batch_size": 4, "lr": rate}
    algorithm = named("pfedme", lambda_=lambda_, steps=100, personal_lr=0.2)
    engine = {"executor": executor, "workers": 1}
    (w,), state = trajectory(algorithm, steady((4,), 1, classes=2), data, local=local, engine=engine, **chosen)
    y = torch.zeros(2, dtype=torch.float64)
    for _ in range(3):
        theta = (a * z + lambda_ * y) / (a + lambda_)
        y = y - rate * lambda_ * (y - theta)
    assert closest(w, y) < 1e-14
    assert closest(state.memory["theta"][0], theta) < 1e-14


def test_pfedme_as_released_serves_the_local_models() -> None:
    chosen = settings(algorithm=named("pfedme", serve="local"), local=LOCAL)
    fed = federation(chosen, steady(SIZES, 5), vectors(), cohorts=COHORTS)
    rounds = watch(fed)
    state, _ = run_rounds(fed)
    assert torch.equal(served(fed, state)[1], rounds[-1][0].W[0])


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("variant", ["fo", "hf"])
def test_pairs_of_full_batches_are_one_batch_taken_twice(variant: str, executor: str) -> None:
    """Momentum too: a batch that prepares a step leaves it alone."""
    models = []
    for batches, epochs in (("alternate", 6), ("alternate", 7), ("same", 3)):
        local = {**LOCAL, "epochs": epochs, "batch_size": 7, "momentum": 0.5}
        algorithm = named("per_fedavg", inner_lr=0.1, batches=batches, variant=variant)
        values: dict[str, Any] = {"local": local, "engine": {"executor": executor, "workers": 1}}
        models.append(trajectory(algorithm, steady(SIZES, 5), vectors(), cohorts=COHORTS, **values)[0])
    assert largest_gap(models[0], models[2]) < 1e-14
    assert all(map(torch.equal, models[0], models[1]))  # a last single batch is left out


@pytest.mark.parametrize("executor", EXECUTORS)
def test_the_hessian_of_per_fedavg_is_the_losses(executor: str, quadratics: Any) -> None:
    """Losses a/2 |theta - z|^2: v = (1 - alpha a) a (y - alpha a (y - z) - z), exact for differences of any size."""
    a, z, inner, rate, steps = 0.5, torch.tensor([1.0, -2.0], dtype=torch.float64), 0.4, 0.2, 4
    data, chosen = quadratics([4], [a], [z.tolist()])
    local = {"steps": steps, "batch_size": 4, "lr": rate}
    algorithm = named("per_fedavg", inner_lr=inner, batches="same", variant="hf", delta=0.5)
    engine = {"executor": executor, "workers": 1}
    (w,), _ = trajectory(algorithm, steady((4,), 1, classes=2), data, local=local, engine=engine, **chosen)
    y = torch.zeros(2, dtype=torch.float64)
    for _ in range(steps):
        y = y - rate * (1 - inner * a) ** 2 * a * (y - z)
    assert closest(w, y) < 1e-14


def test_a_pair_of_batches_counts_once_in_running_statistics_each() -> None:
    """BatchNorm: steps of rate 0 leave the statistics of FedAvg at rate 0."""
    local = {"epochs": 2, "batch_size": 4, "lr": 1e-30}
    (_, ours), (_, plain) = (
        trajectory(name, steady((3, 5), 1), images(), model="cnn_svhn", local=local)
        for name in (named("per_fedavg", inner_lr=0.0), "fedavg")
    )
    assert plain.b.numel()
    assert closest(ours.b, plain.b) < 1e-12


@pytest.mark.parametrize(
    ("algorithm", "steps", "gradients"),
    [
        ("fedavg", 2, 2),
        ("fedlesam", 2, 2),
        ("fedsam", 2, 4),
        (named("fedspeed", mix=0.0), 2, 2),
        (named("apfl", mix="after"), 2, 4),
        (named("pfedme", steps=3), 2, 6),
        *((named("per_fedavg"), steps, gradients) for steps, gradients in ((1, 1), (2, 2), (4, 4), (5, 5))),
        *((named("per_fedavg", variant="hf"), steps, gradients) for steps, gradients in ((1, 1), (4, 8), (5, 9))),
        *((named("per_fedavg", variant="hf", batches="same"), steps, 4 * steps) for steps in (1, 2, 5)),
    ],
)
def test_gradients_are_recorded_and_charged(
    algorithm: Any, steps: int, gradients: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as the declared ones, which are as many as are taken; a mean over participants.

    Pairs of batches take two gradients, or four with the Hessian; of a last single batch only the inner one is taken.
    """
    taken = []
    local = {**LOCAL, "epochs": None, "steps": steps}
    chosen = settings(algorithm=algorithm, local=local, engine={"executor": "threads"})
    fed = federation(chosen, steady((6, 6), 1), vectors())
    cls = type(fed.parts.executor.gradient)  # type: ignore[attr-defined]
    call = cls.__call__
    monkeypatch.setattr(cls, "__call__", lambda self, *a, **kw: (taken.append(1), call(self, *a, **kw))[1])
    _, (record,) = run_rounds(fed)
    assert len(taken) == 2 * gradients
    assert record.row.get("gradients") == (None if gradients == steps else gradients)


def test_computation_of_several_gradients_takes_as_much_longer() -> None:
    once, twice = (
        trained(name, costs={"wireless": True, "phi": 1e12}, local={**LOCAL, "clip": None})[1].totals["latency"]
        for name in (named("fedsam", rho=0.0), named("per_fedavg"))
    )
    assert once / twice == pytest.approx(2, rel=1e-2)
