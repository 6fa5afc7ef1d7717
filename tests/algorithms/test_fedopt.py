"""FedOpt beyond its golden runs: where the second moment starts, and what is not optimized."""

import pytest
import torch

from fedtide.federation.state import initial_state
from support import closest, federation, images, settings, steady, trajectory, vectors


@pytest.mark.parametrize("optimizer", ["adam", "yogi", "adagrad"])
def test_the_second_moment_starts_at_the_squared_floor(optimizer: str) -> None:
    algorithm = {"name": "fedopt", "optimizer": optimizer, "tau": 0.02}
    fed = federation(settings(algorithm=algorithm), steady((5, 2, 7), 1), vectors())
    fed.parts.workers.close()
    assert torch.equal(initial_state(fed.parts).server["v"], torch.full_like(fed.parts.w0, 0.02**2))
    assert not initial_state(fed.parts).server["m"].any()


def test_batchnorm_statistics_are_averaged_and_not_optimized() -> None:
    world, local = steady((3, 5), 1), {"epochs": 1, "batch_size": 4, "lr": 0.05}
    adam = {"name": "fedopt", "optimizer": "adam"}
    (_, ours), (_, plain) = (
        trajectory(name, world, images(), model="cnn_svhn", local=local) for name in (adam, "fedavg")
    )
    assert torch.equal(ours.b, plain.b)
    assert closest(ours.w, plain.w) > 1e-3
