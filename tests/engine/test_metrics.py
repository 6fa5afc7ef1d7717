"""Scores of classifiers, regressions and tasks with several labels per sample, against scikit-learn's."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as reference

from fedtide.training.engine.passes.metrics import (
    METRICS,
    Fit,
    mean_absolute_error,
    mean_average_precision,
    measure,
    r_squared,
)


@pytest.mark.slow
@given(st.integers(2, 5), st.integers(0, 10_000))
def test_as_scikit_learn_computes_them(classes, seed):
    rng = np.random.default_rng(seed)
    logits, labels = rng.normal(size=(80, classes)), rng.integers(0, classes, 80)
    labels[:classes] = np.arange(classes)
    found = measure(METRICS, torch.from_numpy(logits), torch.from_numpy(labels))
    shares = torch.softmax(torch.from_numpy(logits), 1).numpy()
    guess = shares.argmax(1)
    assert found["balanced_accuracy"] == pytest.approx(reference.balanced_accuracy_score(labels, guess), abs=1e-6)
    assert found["macro_f1"] == pytest.approx(reference.f1_score(labels, guess, average="macro"), abs=1e-6)
    one = {"y_score": shares[:, 1]} if classes == 2 else {"y_score": shares, "multi_class": "ovr"}
    assert found["auroc"] == pytest.approx(reference.roc_auc_score(labels, **one), abs=1e-14)
    of_class = {"y_true": labels} if classes == 2 else {"y_true": np.eye(classes)[labels]}
    wanted = reference.average_precision_score(**of_class, y_score=one["y_score"])
    assert found["average_precision"] == pytest.approx(wanted, abs=1e-14)


def test_average_precision_with_ties():
    labels, scores = np.array([0, 1, 1, 0, 1, 0]), np.array([0.9, 0.9, 0.6, 0.6, 0.6, 0.1])
    found = measure(["average_precision"], torch.from_numpy(np.log([1 - scores, scores]).T), torch.from_numpy(labels))
    wanted = reference.average_precision_score(labels, scores)
    assert found["average_precision"] == pytest.approx(wanted, abs=1e-14)


def test_calibration_by_hand():
    logits = torch.log(torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6]], dtype=torch.float64))
    found = measure(["calibration_error"], logits, torch.tensor([0, 1, 1]))
    assert found["calibration_error"] == pytest.approx((2 * abs(0.5 - 0.9) + abs(1 - 0.6)) / 3)


@pytest.mark.parametrize("name", METRICS)
def test_classes_that_do_not_occur_do_not_count(name):
    logits = torch.tensor([[5.0, 0, -9], [0, 5, -9], [4, 0, -9]])
    labels = torch.tensor([0, 1, 0])
    found = measure([name], logits, labels)[name]
    assert found == pytest.approx(1.0, abs=0.05) or (name == "calibration_error" and found < 0.05)


def test_what_is_not_determined_is_empty():
    for name in ("auroc", "average_precision"):
        for label in (0, 1):
            assert measure([name], torch.zeros(3, 2), torch.full((3,), label)) == {name: None}
    empty = measure(METRICS, torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64))
    assert empty == dict.fromkeys(METRICS)


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


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("count", "width"), [(2, 1), (50, 1), (50, 4)])
def test_scores_of_other_tasks_are_those_of_scikit_learn(seed: int, count: int, width: int) -> None:
    labels, outputs = targets(count, width, seed)
    given = torch.from_numpy(outputs), torch.from_numpy(labels)
    assert r_squared(*given) == pytest.approx(reference.r2_score(labels, outputs), rel=1e-9)
    assert mean_absolute_error(*given) == pytest.approx(reference.mean_absolute_error(labels, outputs), rel=1e-12)
    labels, outputs = labeled(count, width, seed)
    wanted = reference.average_precision_score(labels, outputs, average="macro")
    found = mean_average_precision(torch.from_numpy(outputs), torch.from_numpy(labels))
    assert found == pytest.approx(wanted, rel=1e-6)


def test_what_samples_of_other_tasks_do_not_determine() -> None:
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
