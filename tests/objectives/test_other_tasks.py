"""Losses of regressions and of tasks with several labels per sample."""

from typing import Any

import torch
from torch.nn import functional

from fedtide.core import plugins
from fedtide.training.models.base import Outputs
from fedtide.training.objectives.base import Objective


def objective(name: str, **chosen: Any) -> Objective:
    cls = plugins.load("objectives", name)
    found = cls(cls.Settings(**chosen))
    assert isinstance(found, Objective)
    return found


def batch(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    draws = torch.Generator().manual_seed(0)
    return tuple(3 * torch.randn(*shape, dtype=torch.float64, generator=draws) for _ in range(2))  # type: ignore[return-value]


def losses(name: str, z: torch.Tensor, y: torch.Tensor, **chosen: Any) -> torch.Tensor:
    return objective(name, **chosen).loss(Outputs(z, z), y, None)


def test_they_are_those_of_torch() -> None:
    z, y = batch(40, 3)
    hot = (y > 0).to(z.dtype)
    kept = {"reduction": "none"}
    for found, known in (
        (losses("mean_squared_error", z, y), functional.mse_loss(z, y, **kept)),
        (losses("huber", z, y, delta=1.5), functional.huber_loss(z, y, delta=1.5, **kept)),
        (losses("binary_cross_entropy", 20 * z, hot), functional.binary_cross_entropy_with_logits(20 * z, hot, **kept)),
    ):
        torch.testing.assert_close(found, known.mean(1), rtol=1e-12, atol=1e-9)
