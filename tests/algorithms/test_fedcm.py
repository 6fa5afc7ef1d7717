"""FedCM: what its momentum is under local momentum, and what it records."""

from typing import Any

import pytest
import torch

from support import closest, federation, run_rounds, settings, steady, trajectory, vectors, watch


def test_delta_is_a_gradient_under_local_momentum_too(quadratics: Any) -> None:
    """The curvature is so small that the gradient is as good as constant."""
    data, chosen = quadratics([3, 6], [1e-12] * 2, [[-1e12, 2e12]] * 2)
    local = {"epochs": 2, "batch_size": 3, "lr": 0.2, "momentum": 0.9}
    own = {"name": "fedcm", "alpha": 0.3}
    _, state = trajectory(own, steady([3, 6], 1, classes=2), data, local=local, **chosen)
    assert closest(state.server["Delta"], 0.3 * torch.tensor([1.0, -2.0], dtype=torch.float64)) < 1e-9


def test_what_is_recorded_of_clients_and_server() -> None:
    """7 samples in batches of 3 are 3 steps, nominally 7/3; with nominal division by the mean size, kappa tells it."""
    local = {"epochs": 2, "batch_size": 3, "lr": 0.1}
    for norm, kappas in (("actual", [1.0, 1.0]), ("nominal", [6 / (2 * 5 / 3), 2 / (2 * 5 / 3)])):
        own = {"name": "fedcm", "alpha": 0.3, "momentum_norm": norm, "weighting": "samples"}
        fed = federation(settings(algorithm=own, local=local), steady((7, 3), 2), vectors())
        seen = watch(fed)
        _, records = run_rounds(fed)
        assert records[0].clients["client"] == [0, 1]
        assert records[0].clients["weight"] == pytest.approx([0.7, 0.3])
        assert records[0].clients["kappa"] == pytest.approx(kappas)
        for record, (r, _) in zip(records, seen, strict=True):
            assert record.row["alpha"] == 0.3
            assert record.row["momentum_norm"] == pytest.approx(float(torch.linalg.vector_norm(r.server.Delta)))
