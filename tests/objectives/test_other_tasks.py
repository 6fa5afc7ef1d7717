"""Losses of regressions and of tasks with several labels per sample."""

from typing import Any

import pytest
import torch
from torch.func import grad, vmap
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


def test_a_huber_loss_that_no_error_leaves_is_half_the_squared_error() -> None:
    z, y = batch(40, 1)  # of one target, so that no sum rounds
    assert torch.equal(losses("huber", z, y, delta=1e3), losses("mean_squared_error", z, y) / 2)


@pytest.mark.parametrize("name", ["mean_squared_error", "huber", "binary_cross_entropy"])
def test_gradients_for_each_sample_and_client(name: str) -> None:
    z, y = batch(2, 5, 3)
    y = (y > 0).to(z.dtype) if name == "binary_cross_entropy" else y
    by_hand = {
        "mean_squared_error": 2 * (z - y),
        "huber": (z - y).clamp(-1, 1),
        "binary_cross_entropy": z.sigmoid() - y,
    }
    found = vmap(grad(lambda z, y: losses(name, z, y).sum()))(z, y)
    torch.testing.assert_close(found, by_hand[name] / 3)
