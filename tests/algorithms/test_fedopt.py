"""FedOpt: identities with FedAvg, torch.optim and between its optimizers."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from fedtide.federation.state import initial_state
from fedtide.federation.types import RunState
from support import closest, federation, images, run_rounds, settings, steady, trajectory, vectors, watch

SIZES = (5, 2, 7)
LOCAL = {"epochs": 2, "batch_size": 3, "lr": 0.1}


def fedopt(optimizer: str, **values: Any) -> dict[str, Any]:
    """Settings of FedOpt."""
    return {"name": "fedopt", "optimizer": optimizer, **values}


def followed(algorithm: Any, rounds: int = 4) -> tuple[list[tuple[Tensor, Tensor, Tensor]], RunState]:
    """(w, D, w+) of every round."""
    fed = federation(settings(algorithm=algorithm, local=LOCAL), steady(SIZES, rounds), vectors())
    seen = watch(fed)
    state, _ = run_rounds(fed)
    return [(r.w, r.average() - r.w, w) for r, w in seen], state


def test_sgd_is_fedavgm() -> None:
    rounds, state = followed(fedopt("sgd", beta1=0.7, server_lr=0.5))
    m = torch.zeros_like(state.w)
    for w, D, new in rounds:
        m = 0.7 * m + D
        assert closest(new, w + 0.5 * m) < 1e-14
    assert closest(state.server["m"], m) < 1e-14


def test_adagrad_without_momentum_is_torch_adagrad() -> None:
    rounds, state = followed(fedopt("adagrad", beta1=0.0, server_lr=0.2, tau=0.01, v0=0.003))
    x = torch.nn.Parameter(rounds[0][0].clone())
    optimizer = torch.optim.Adagrad([x], lr=0.2, eps=0.01, initial_accumulator_value=0.003)
    for w, D, new in rounds:
        assert closest(w, x.detach()) < 1e-14
        x.grad = -D
        optimizer.step()
        assert closest(new, x.detach()) < 1e-14
    assert closest(state.server["v"], optimizer.state[x]["sum"]) < 1e-14


def test_adam_is_torch_adam_without_bias_correction() -> None:
    """torch divides m by 1 - beta1^t and v by 1 - beta2^t: with rate and floor scaled accordingly the steps agree."""
    lr, tau, beta1, beta2 = 0.1, 0.01, 0.9, 0.99
    rounds, _ = followed(fedopt("adam", server_lr=lr, tau=tau, beta1=beta1, beta2=beta2, v0=0.0))
    x = torch.nn.Parameter(rounds[0][0].clone())
    optimizer = torch.optim.Adam([x], betas=(beta1, beta2))
    for t, (_, D, new) in enumerate(rounds, start=1):
        root = math.sqrt(1 - beta2**t)
        optimizer.param_groups[0].update(lr=lr * (1 - beta1**t) / root, eps=tau / root)
        x.grad = -D
        optimizer.step()
        assert closest(new, x.detach()) < 1e-13


def test_yogi_and_adam_differ_in_the_first_step_by_the_decay_of_v0() -> None:
    """v1(adam) - v1(yogi) = -(1 - beta2) v0 wherever v0 <= D^2."""
    (adam, a), (yogi, y) = (followed(fedopt(name, v0=1e-12, beta2=0.9), rounds=1) for name in ("adam", "yogi"))
    D = adam[0][1]
    assert torch.equal(D, yogi[0][1])
    assert bool((D.square() >= 1e-12).all())
    assert closest((a.server["v"] - y.server["v"]) / 1e-12, torch.full_like(D, -0.1)) < 1e-3


def test_yogi_leaves_v_where_it_equals_the_squared_step(quadratics: Any) -> None:
    """A constant gradient x gives D = lr x; with v0 = D^2 the second moment stays."""
    data, chosen = quadratics([2], [1e-12], [[3e12]])
    local = {"steps": 1, "batch_size": 2, "lr": 0.5}
    for optimizer, still in (("yogi", True), ("adagrad", False)):
        algorithm = fedopt(optimizer, v0=2.25, beta2=0.9)
        _, state = trajectory(algorithm, steady([2], 1, classes=1), data, local=local, **chosen)
        assert (closest(state.server["v"], torch.tensor([2.25], dtype=torch.float64)) < 1e-9) is still


@pytest.mark.parametrize("optimizer", ["adam", "yogi", "adagrad"])
def test_the_second_moment_starts_at_the_squared_floor(optimizer: str) -> None:
    fed = federation(settings(algorithm=fedopt(optimizer, tau=0.02)), steady(SIZES, 1), vectors())
    fed.parts.workers.close()
    assert torch.equal(initial_state(fed.parts).server["v"], torch.full_like(fed.parts.w0, 0.02**2))
    assert not initial_state(fed.parts).server["m"].any()


def test_batchnorm_statistics_are_averaged_and_not_optimized() -> None:
    world, local = steady((3, 5), 1), {"epochs": 1, "batch_size": 4, "lr": 0.05}
    (_, ours), (_, plain) = (
        trajectory(name, world, images(), model="cnn_svhn", local=local) for name in (fedopt("adam"), "fedavg")
    )
    assert torch.equal(ours.b, plain.b)
    assert closest(ours.w, plain.w) > 1e-3


@pytest.mark.parametrize(("optimizer", "root"), [("adam", 0.8), ("yogi", 1.0), ("adagrad", 1.0)])
def test_a_large_floor_and_its_own_square_leave_a_fixed_part_of_the_step(optimizer: str, root: float) -> None:
    """v stays at tau^2, or in Adam decays to beta2^(r+1) tau^2: the step tends to D / (1 + beta2^((r+1)/2)) or to D / 2."""
    tau = 1e6
    rounds, _ = followed(fedopt(optimizer, beta1=0.0, beta2=0.64, server_lr=tau, tau=tau))
    for t, (w, D, new) in enumerate(rounds, start=1):
        assert closest(new, w + D / (1 + root**t)) < 1e-6 * float(D.abs().max())
