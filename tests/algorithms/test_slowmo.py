"""SlowMo: FedAvgM under a constant rate, and what a falling rate changes."""

from functools import partial
from typing import Any

import torch

from support import closest, federation, largest_gap, run_rounds, settings, steady, trajectory, vectors, watch

SIZES = (5, 2, 7)
THREADS = {"executor": "threads", "workers": 1}
LOCAL: dict[str, Any] = {"epochs": 2, "batch_size": 3, "lr": 0.1}


slowmo = partial(dict, name="slowmo")


def test_it_is_fedavgm_if_and_only_if_the_rate_is_constant() -> None:
    momentum = {"name": "fedopt", "optimizer": "sgd", "beta1": 0.7, "server_lr": 0.6}
    for local, same in ((LOCAL, True), ({**LOCAL, "schedule": "exponential", "decay": 0.8}, False)):
        ours, theirs = (
            trajectory(name, steady(SIZES, 4), vectors(), local=local, engine=THREADS)[0]
            for name in (slowmo(beta=0.7, alpha_s=0.6), momentum)
        )
        assert (largest_gap(ours, theirs) < 1e-13) is same


def test_the_buffer_is_in_units_of_a_gradient() -> None:
    """b+ = beta b - D / lr_r and x+ = x - alpha lr_r b+ with the rate of each round."""
    local = {**LOCAL, "schedule": "exponential", "decay": 0.8}
    fed = federation(
        settings(algorithm=slowmo(beta=0.7, alpha_s=0.6), local=local, engine=THREADS), steady(SIZES, 4), vectors()
    )
    seen = watch(fed)
    run_rounds(fed)
    b = torch.zeros_like(fed.parts.w0)
    for t, (r, new) in enumerate(seen):
        lr = 0.1 * 0.8**t
        b = 0.7 * b - (r.average() - r.w) / lr
        assert closest(new, r.w - 0.6 * lr * b) < 1e-14
