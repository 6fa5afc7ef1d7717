"""Cross-entropy, focal loss, balanced softmax and LDAM: reductions, closed forms, whose counts they see."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fedtide.core import plugins
from fedtide.federation.state import initial_state
from fedtide.training.models.base import Outputs
from support import closest, dataset, federation, largest_gap, settings, steady, trajectory, watch

LABELS = torch.tensor([0, 1, 2, 3, 2, 0])
COUNTS = torch.tensor([16.0, 1.0, 0.0, 81.0], dtype=torch.float64)


def logits() -> Tensor:
    """Six samples, four classes."""
    return torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()


def made(name: str, **values: Any) -> Any:
    """An objective."""
    cls = plugins.load("objectives", name)
    return cls(cls.Settings(name=name, **values))


def value_and_slope(objective: Any, counts: Tensor | None, labels: Tensor = LABELS) -> tuple[Tensor, Tensor]:
    """Losses and the gradient of their sum."""
    z = logits()
    losses = objective.loss(Outputs(z, z), labels, counts)
    return losses.detach(), torch.autograd.grad(losses.sum(), z)[0]


@pytest.mark.parametrize(
    ("objective", "counts"),
    [
        (made("cross_entropy"), COUNTS),
        (made("focal", gamma=0.0), COUNTS),
        (made("balanced_softmax"), torch.full((4,), 7.0, dtype=torch.float64)),
        (made("balanced_softmax"), None),
        (made("ldam", max_margin=0.0, scale=1.0), COUNTS),
        (made("ldam", scale=1.0), None),
    ],
)
def test_it_reduces_to_cross_entropy(objective: Any, counts: Tensor | None) -> None:
    for ours, plain in zip(
        value_and_slope(objective, counts), value_and_slope(made("cross_entropy"), None), strict=True
    ):
        assert closest(ours, plain) < 1e-14


@pytest.mark.parametrize("gamma", [0.5, 2.0, 5.0])
def test_focal_loss_of_uniform_logits(gamma: float) -> None:
    z = torch.zeros(3, 4, dtype=torch.float64)
    losses = made("focal", gamma=gamma).loss(Outputs(z, z), LABELS[:3], None)
    assert closest(losses, torch.full((3,), 0.75**gamma * math.log(4), dtype=torch.float64)) < 1e-15


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_certain_sample_has_no_focal_gradient(gamma: float, dtype: torch.dtype) -> None:
    z = torch.tensor([[1000.0, 0.0, 0.0]], dtype=dtype, requires_grad=True)
    loss = made("focal", gamma=gamma).loss(Outputs(z, z), torch.tensor([0]), None)
    (slope,) = torch.autograd.grad(loss.sum(), z)
    assert loss.item() == 0
    assert not slope.any()


def test_balanced_softmax_weighs_the_exponentials_by_the_counts() -> None:
    losses, _ = value_and_slope(made("balanced_softmax"), COUNTS)
    prior = COUNTS / COUNTS.sum() + 1e-9
    weighted = prior * logits().detach().exp()
    assert (
        closest(losses, -(weighted / weighted.sum(1, keepdim=True)).gather(1, LABELS.unsqueeze(1))[:, 0].log()) < 1e-13
    )


def test_margins_grow_with_the_fourth_root_of_rarity() -> None:
    ldam = made("ldam", max_margin=0.6, scale=2.0)
    assert closest(ldam.margins(COUNTS), torch.tensor([0.3, 0.6, 0.6, 0.2], dtype=torch.float64)) < 1e-15
    losses, _ = value_and_slope(ldam, COUNTS)
    shifted = logits().detach() - ldam.margins(COUNTS) * functional.one_hot(LABELS, 4)
    assert closest(losses, functional.cross_entropy(2 * shifted, LABELS, reduction="none")) < 1e-14


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["threads", "stacked"])
def test_a_global_prior_of_balanced_data_is_cross_entropy_and_a_local_one_is_not(executor: str) -> None:
    inputs = torch.randn(12, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    data = dataset(inputs, torch.tensor([0, 0, 1, 2, 1, 1, 0, 2, 2, 2, 0, 1]), 3)
    common = {
        "cohorts": [[0, 2], [1], [0, 1, 2]],
        "local": {"epochs": 2, "batch_size": 3, "lr": 0.2},
        "engine": {"executor": executor, "workers": 1},
    }
    plain, everybody, own = (
        trajectory("fedavg", steady((4, 4, 4), 3), data, objective=objective, **common)[0]
        for objective in (
            "cross_entropy",
            {"name": "balanced_softmax", "prior": "global"},
            {"name": "balanced_softmax", "prior": "local"},
        )
    )
    assert largest_gap(everybody, plain) < 1e-14
    assert largest_gap(own, plain) > 1e-3


@pytest.mark.parametrize("objective", ["balanced_softmax", "ldam"])
def test_full_gradients_see_the_same_counts_as_local_steps(objective: str) -> None:
    """One full-batch step moves a client by its full gradient, under either prior."""
    inputs = torch.randn(9, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    data = dataset(inputs, torch.tensor([0, 0, 0, 2, 1, 0, 0, 2, 0]), 3)
    for prior in ("local", "global"):
        local = {"epochs": 1, "batch_size": 99, "lr": 0.1}
        chosen = settings(objective={"name": objective, "prior": prior}, local=local)
        fed = federation(chosen, steady((4, 5), 1), data)
        seen = watch(fed)
        with torch.no_grad():
            fed.run_round(initial_state(fed.parts))
            r, _ = seen[0]
            assert closest(r.W, r.w - 0.1 * r.services.full_gradient(r.w)) < 1e-14
        fed.parts.workers.close()
