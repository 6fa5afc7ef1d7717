from __future__ import annotations

import math

import torch
from torch.func import grad, vmap

from fedtide.core import plugins
from fedtide.training.models.base import Outputs
from fedtide.training.objectives.base import Objective


def objective() -> Objective:
    cls = plugins.load("objectives", "cross_entropy")
    found = cls(cls.Settings())
    assert isinstance(found, Objective)
    return found


def test_uniform_logits_cost_log_of_the_number_of_classes() -> None:
    outputs = Outputs(torch.full((5, 8), 3.0, dtype=torch.float64), torch.zeros(5, 2))
    losses = objective().loss(outputs, torch.tensor([0, 1, 2, 7, 7]), None)
    torch.testing.assert_close(losses, torch.full((5,), math.log(8), dtype=torch.float64))


def test_gradient_is_softmax_minus_one_hot_for_each_sample_and_client() -> None:
    logits = torch.randn(3, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([[0, 1, 2, 3], [4, 4, 4, 4], [3, 2, 1, 0]])

    def total(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return objective().loss(Outputs(z, z), y, None).sum()

    expected = logits.softmax(-1) - torch.nn.functional.one_hot(labels, 5)
    torch.testing.assert_close(vmap(grad(total))(logits, labels), expected)


def test_counts_do_not_matter() -> None:
    outputs = Outputs(torch.randn(4, 3), torch.zeros(4, 1))
    labels = torch.tensor([0, 1, 2, 0])
    with_counts = objective().loss(outputs, labels, torch.tensor([100.0, 1.0, 0.0]))
    assert torch.equal(with_counts, objective().loss(outputs, labels, None))
