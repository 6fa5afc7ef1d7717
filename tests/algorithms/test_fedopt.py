"""FedOpt beyond its golden runs: where the second moment starts, and what is not optimized."""

import pytest
import torch

from fedtide.federation.state import initial_state
from support import federation, settings, steady, vectors


@pytest.mark.parametrize("optimizer", ["adam", "yogi", "adagrad"])
def test_the_second_moment_starts_at_the_squared_floor(optimizer: str) -> None:
    algorithm = {"name": "fedopt", "optimizer": optimizer, "tau": 0.02}
    fed = federation(settings(algorithm=algorithm), steady((5, 2, 7), 1), vectors())
    fed.parts.workers.close()
    assert torch.equal(initial_state(fed.parts).server["v"], torch.full_like(fed.parts.w0, 0.02**2))
    assert not initial_state(fed.parts).server["m"].any()
