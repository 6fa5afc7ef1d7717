"""Losses of regressions and of tasks with several labels per sample."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.func import grad, vmap
from torch.nn import functional

from fedtide.core import plugins
from fedtide.training.models.base import Outputs
from fedtide.training.objectives.base import Objective

TASKS = {
    "cross_entropy": "classification",
    "mean_squared_error": "regression",
    "huber": "regression",
    "binary_cross_entropy": "multilabel",
}


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


@pytest.mark.parametrize(("name", "task"), TASKS.items())
def test_an_objective_says_what_it_is_for(name: str, task: str) -> None:
    assert objective(name).task == task


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


@pytest.mark.parametrize("name", [name for name in TASKS if name != "cross_entropy"])
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


def test_logits_of_zero_pull_with_a_half() -> None:
    """Where a network with a head of zeros begins."""
    z, y = torch.zeros(1, 2), torch.tensor([[0.0, 1.0]])
    assert grad(lambda z: losses("binary_cross_entropy", z, y).sum())(z).tolist() == [[0.25, -0.25]]
