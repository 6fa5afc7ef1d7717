"""Scores of regressions and of tasks with several labels per sample."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn import metrics

from fedtide.training.engine.passes.metrics import Fit, mean_absolute_error, mean_average_precision, r_squared


def targets(count: int, width: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels far from zero, and outputs that explain some of them."""
    rng = np.random.default_rng(seed)
    labels = 1e3 * rng.normal(size=(count, width)) + 1e5
    return labels, labels + rng.normal(scale=rng.uniform(1, 3e3, width), size=labels.shape)


def labeled(count: int, width: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rare and frequent labels, and outputs with ties."""
    rng = np.random.default_rng(seed)
    labels = (rng.random((count, width)) < rng.uniform(0.05, 0.9, width)).astype(np.float64)
    labels[0] = 1
    return labels, (labels + rng.normal(scale=2, size=labels.shape)).round(1)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("count", "width"), [(2, 1), (50, 1), (50, 4)])
def test_they_are_those_of_scikit_learn(seed: int, count: int, width: int) -> None:
    labels, outputs = targets(count, width, seed)
    given = torch.from_numpy(outputs), torch.from_numpy(labels)
    assert r_squared(*given) == pytest.approx(metrics.r2_score(labels, outputs), rel=1e-9)
    assert mean_absolute_error(*given) == pytest.approx(metrics.mean_absolute_error(labels, outputs), rel=1e-12)
    labels, outputs = labeled(count, width, seed)
    wanted = metrics.average_precision_score(labels, outputs, average="macro")
    found = mean_average_precision(torch.from_numpy(outputs), torch.from_numpy(labels))
    assert found == pytest.approx(wanted, rel=1e-6)


def test_what_samples_do_not_determine() -> None:
    """Targets without variance and labels that no sample has are left out; if that leaves none, there is no score."""
    none, one = torch.zeros(0, 2, dtype=torch.float64), torch.ones(1, 2, dtype=torch.float64)
    assert Fit("regression", none, none).row() == {"r2": None, "mae": None, "loss": None}
    assert Fit("regression", one, one).row() == {"r2": None, "mae": 0.0, "loss": 0.0}
    assert Fit("multilabel", none, none).row() == {"mean_ap": None, "loss": None}
    labels = torch.tensor([[0.0, 5.0], [2.0, 5.0]], dtype=torch.float64)
    assert r_squared(torch.tensor([[0.0, 7.0], [1.0, 7.0]], dtype=torch.float64), labels) == 0.5
    hot = torch.tensor([[1.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    assert mean_average_precision(hot, hot) == 1.0
    assert mean_average_precision(hot, torch.zeros_like(hot)) is None


def test_a_model_no_better_than_the_mean_has_no_share_and_a_worse_one_less() -> None:
    labels = torch.tensor([[1.0], [3.0]], dtype=torch.float64)
    assert r_squared(torch.full_like(labels, 2.0), labels) == 0.0
    assert r_squared(torch.tensor([[3.0], [1.0]], dtype=torch.float64), labels) == -3.0
