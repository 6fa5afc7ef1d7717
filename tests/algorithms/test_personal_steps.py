"""Clients with models of their own that a local step trains (pFedMe, APFL), or that a few steps make (Per-FedAvg)."""

from typing import Any

import pytest
import torch

from fedtide.federation.federation import Federation
from fedtide.federation.types import RunState
from fedtide.settings.reading.yaml_files import read_value
from support import closest, federation, largest_gap, run_rounds, settings, steady, trajectory, vectors

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


def test_no_is_a_word_in_settings_files() -> None:
    chosen: Any = settings(algorithm=named("apfl", adaptive=read_value("no"))).algorithm
    assert chosen.adaptive == "no"


@pytest.mark.slow
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
