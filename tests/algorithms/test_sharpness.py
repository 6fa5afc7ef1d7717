"""FedSAM and FedSpeed beyond their golden runs: BatchNorm statistics, and a population that changes."""

import torch

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


def test_running_statistics_count_a_batch_once() -> None:
    """BatchNorm: without a radius both gradients are the same, and so are the statistics of FedAvg."""
    local = {"epochs": 1, "batch_size": 4, "lr": 0.05}
    (_, ours), (_, plain) = (
        trajectory(name, steady((3, 5), 1), images(), model="cnn_svhn", local=local)
        for name in ({"name": "fedsam", "rho": 0.0}, "fedavg")
    )
    assert plain.b.numel()
    assert torch.equal(ours.b, plain.b)
    assert closest(ours.w, plain.w) < 1e-12


def test_a_kept_mean_fits_those_who_are_present() -> None:
    world = timeline(deal((5, 2, 7, 4)), [{0: 0, 1: 1, 2: 2}] * 2 + [{2: 2, 3: 3}], session_of_round=[0, 0, 1])
    chosen = settings(algorithm={"name": "fedspeed", "a": 0.3}, client_state={"on_session_start": "keep"})
    fed = federation(chosen, world, vectors())
    seen = watch(fed)
    state, _ = run_rounds(fed)
    assert closest(seen[-1][0].server.h_mean, state.memory["h"][[2, 3]].mean(0)) < 1e-14
    assert bool(state.memory["h"][0].any())
