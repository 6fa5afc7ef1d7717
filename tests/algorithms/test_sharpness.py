"""FedSAM, MoFedSAM, FedSpeed, FedSMOO, FedLESAM: reductions, closed forms, memories."""

from typing import Any

import pytest
import torch
from torch import Tensor

from support import (
    closest,
    deal,
    federation,
    images,
    run_rounds,
    settings,
    steady,
    timeline,
    trajectory,
    vectors,
    watch,
)

SIZES = (5, 2, 7)
COHORTS = [[0, 2], [1, 2], [0], [0, 1, 2]]
THREADS = {"executor": "threads", "workers": 1}
LOCAL = {"epochs": 2, "batch_size": 3, "lr": 0.2, "weight_decay": 0.01, "clip": 10.0}
SPEED = {"name": "fedspeed", "a": 0.3}


def named(algorithm: str, **values: Any) -> dict[str, Any]:
    """Settings of an algorithm."""
    return {"name": algorithm, **values}


def rounds_of(algorithm: Any, rounds: int = 4, sizes: Any = SIZES, cohorts: Any = COHORTS, **values: Any) -> Any:
    """Records and models of a run."""
    chosen = settings(algorithm=algorithm, **{"local": LOCAL, "engine": THREADS, **values})
    fed = federation(chosen, steady(sizes, rounds), vectors(), cohorts=cohorts and cohorts[:rounds])
    seen = watch(fed)
    run_rounds(fed)
    return seen


def test_without_the_dual_term_fedspeed_trains_as_fedsam() -> None:
    """One round with a = 0; the server adds the memory all the same, so that the models differ."""
    (ours, w), (plain, other) = (rounds_of(name, 1)[0] for name in (named("fedspeed", a=0.0), "fedsam"))
    assert torch.equal(ours.W, plain.W)
    assert closest(w, other) > 1e-3


def test_the_very_first_step_of_fedsmoo_is_that_of_fedspeed() -> None:
    local = {**LOCAL, "epochs": None, "steps": 1}
    (ours, w), (plain, other) = (
        rounds_of(named(name, a=0.3), 1, local=local, engine=THREADS)[0] for name in ("fedsmoo", "fedspeed")
    )
    assert closest(ours.W, plain.W) < 1e-15
    assert closest(w, other) < 1e-15


@pytest.mark.parametrize("base", ["fedavg", "scaffold", "feddyn"])
def test_fedlesam_perturbs_only_clients_that_have_been_there(base: str) -> None:
    ours, without = (rounds_of(named("fedlesam", base=base, rho=rho), 2) for rho in (0.5, 0.0))
    assert closest(ours[0][0].W, without[0][0].W) == 0
    new, old = 0, 1  # the second round's clients 1 and 2; client 2 was in the first
    assert closest(ours[1][0].W[new], without[1][0].W[new]) == 0
    assert closest(ours[1][0].W[old], without[1][0].W[old]) > 1e-4


def test_fedlesam_looks_back_to_what_the_client_received_last(quadratics: Any) -> None:
    """One step on a/2 |y - z|^2 goes along a (x + e - z), e = rho (x_old - x) / |x_old - x|."""
    a, z, rho, lr = [0.5, 2.0], torch.tensor([[1.0, -2.0], [3.0, 4.0]], dtype=torch.float64), 0.7, 0.2
    data, chosen = quadratics([4, 4], a, z.tolist())
    local = {"epochs": 1, "batch_size": 4, "lr": lr}
    cohorts = [[0], [1], [1], [0]]
    models, state = trajectory(
        named("fedlesam", rho=rho),
        steady((4, 4), 4, classes=2),
        data,
        local=local,
        engine=THREADS,
        cohorts=cohorts,
        **chosen,
    )
    x: Tensor = torch.zeros(2, dtype=torch.float64)
    received: dict[int, Tensor] = {}
    for (client,), model in zip(cohorts, models, strict=True):
        e = torch.zeros_like(x)
        if client in received:
            e = received[client] - x
            e = rho * e / (e.norm() + 1e-7)
        received[client] = x
        x = x - lr * a[client] * (x + e - z[client])
        assert closest(model, x) < 1e-14
    assert closest(state.memory["x_old"], torch.stack([received[0], received[1]])) < 1e-14


def test_fedsam_on_quadratics_lengthens_the_gradient(quadratics: Any) -> None:
    """g(y + rho g / |g|) = g (1 + a rho / |g|)."""
    a, z, rho, lr, steps = 0.5, torch.tensor([1.0, -2.0], dtype=torch.float64), 0.3, 0.2, 5
    data, chosen = quadratics([4], [a], [z.tolist()])
    local = {"steps": steps, "batch_size": 4, "lr": lr}
    (w,), _ = trajectory(
        named("fedsam", rho=rho), steady((4,), 1, classes=2), data, local=local, engine=THREADS, **chosen
    )
    y: Tensor = torch.zeros(2, dtype=torch.float64)
    for _ in range(steps):
        g = a * (y - z)
        y = y - lr * g * (1 + a * rho / (g.norm() + 1e-7))
    assert closest(w, y) < 1e-14


def test_running_statistics_count_a_batch_once() -> None:
    """BatchNorm: without a radius both gradients are the same, and so are the statistics of FedAvg."""
    local = {"epochs": 1, "batch_size": 4, "lr": 0.05}
    (_, ours), (_, plain) = (
        trajectory(name, steady((3, 5), 1), images(), model="cnn_svhn", local=local)
        for name in (named("fedsam", rho=0.0), "fedavg")
    )
    assert plain.b.numel()
    assert torch.equal(ours.b, plain.b)
    assert closest(ours.w, plain.w) < 1e-12


@pytest.mark.parametrize("algorithm", ["fedspeed", "fedsmoo"])
def test_h_sums_up_displacements_and_the_server_keeps_its_mean(algorithm: str) -> None:
    seen = rounds_of(named(algorithm, a=0.3))
    h = torch.zeros(len(SIZES), seen[0][0].w.numel(), dtype=torch.float64)
    for (r, x), cohort in zip(seen, COHORTS, strict=True):
        before = h.mean(0)
        h[cohort] += r.W - r.w
        assert closest(r.server.h_mean, h.mean(0)) < 1e-15
        assert closest(x, r.average() + h.mean(0)) < 1e-15
        if len(cohort) == len(SIZES):
            assert closest(h.mean(0) - before, (r.W - r.w).mean(0)) < 1e-15


def test_the_server_of_fedspeed_as_published() -> None:
    for r, x in rounds_of({**SPEED, "server_form": "participants"}):
        assert closest(x, (r.W + r.client.h).mean(0)) < 1e-15


def test_the_global_perturbation_of_fedsmoo_has_the_radius() -> None:
    for r, _ in rounds_of(named("fedsmoo", rho=0.3)):
        m = r.client.mu.mean(0)
        assert float(r.server.s.norm()) == pytest.approx(0.3, rel=1e-5)
        assert closest(r.server.s, 0.3 * m / (m.norm() + 1e-7)) < 1e-15


def test_a_kept_mean_fits_those_who_are_present() -> None:
    world = timeline(deal((5, 2, 7, 4)), [{0: 0, 1: 1, 2: 2}] * 2 + [{2: 2, 3: 3}], session_of_round=[0, 0, 1])
    chosen = settings(algorithm=SPEED, local=LOCAL, engine=THREADS, client_state={"on_session_start": "keep"})
    fed = federation(chosen, world, vectors())
    seen = watch(fed)
    state, _ = run_rounds(fed)
    assert closest(seen[-1][0].server.h_mean, state.memory["h"][[2, 3]].mean(0)) < 1e-14
    assert bool(state.memory["h"][0].any())
