"""Small problems for the methods that remember absent clients."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from support import steady, trajectory, vectors

SIZES = (5, 2, 7, 4)
LOCAL: dict[str, Any] = {"epochs": 2, "batch_size": 3, "lr": 0.1, "weight_decay": 0.01}
DECAYING = {**LOCAL, "schedule": "exponential", "decay": 0.8}
FULL_BATCH = {"steps": 1, "batch_size": 100, "order": "stored", "lr": 0.1}
COHORTS = [[0, 2], [1, 2, 3], [2], [0, 1, 3], [3]]
EVERYBODY = [[0, 1, 2, 3]] * 5
UNIFORM = {"name": "fedavg", "weighting": "uniform"}


def models(algorithm: Any, cohorts: list[list[int]] = COHORTS, **values: Any) -> list[Tensor]:
    """Global models of some rounds with these cohorts."""
    common: dict[str, Any] = {"local": DECAYING, **values}
    return trajectory(algorithm, steady(SIZES, len(cohorts)), vectors(), cohorts=cohorts, **common)[0]


def start() -> Tensor:
    """An initial model of these problems: three classes, five features."""
    return torch.from_numpy(np.random.default_rng(7).normal(size=18)) / 5


def available(chances: tuple[float, ...], rounds: int, seed: int = 0) -> list[list[int]]:
    """Cohorts of independently available clients; the first one has everybody, an empty one the first client."""
    drawn = np.random.default_rng(seed).random((rounds, len(chances))) < np.array(chances)
    drawn[0], drawn[~drawn.any(1), 0] = True, True
    return [np.flatnonzero(row).tolist() for row in drawn]
