"""Metrics against scikit-learn's, and what is not determined."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as reference

from fedtide.training.engine.passes.metrics import METRICS, measure


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
    assert found["auroc"] == pytest.approx(reference.roc_auc_score(labels, **one), abs=1e-6)


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
    assert measure(["auroc"], torch.zeros(3, 2), torch.zeros(3, dtype=torch.int64)) == {"auroc": None}
    empty = measure(METRICS, torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64))
    assert empty == dict.fromkeys(METRICS)
