"""Metrics of a classifier beside accuracy and loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

METRICS = ("balanced_accuracy", "macro_f1", "auroc", "calibration_error")
"""Names, as in ``evaluation.metrics``; log loss is ``loss``, which is always recorded."""

_BINS = 15


def measure(names: Sequence[str], logits: Tensor, labels: Tensor) -> dict[str, float | None]:
    """Some of :data:`METRICS` for logits [n, L], by name; ``None`` where the samples do not determine one."""
    if not names or not len(labels):
        return dict.fromkeys(names)
    from torchmetrics.functional import classification  # with Matplotlib, which takes long to import

    probabilities = torch.softmax(logits.to(torch.float64), 1)
    return {name: _MEASURES[name](classification, probabilities, labels) for name in names}


def _balanced_accuracy(by: Any, probabilities: Tensor, labels: Tensor) -> float:
    """Mean over the classes that occur of the share of their samples that are predicted correctly."""
    recalls = by.multiclass_recall(probabilities, labels, probabilities.shape[1], average="none")
    return float(recalls[torch.unique(labels)].mean())


def _macro_f1(by: Any, probabilities: Tensor, labels: Tensor) -> float:
    """Mean over the classes that occur, or are predicted, of the harmonic mean of precision and recall."""
    scores = by.multiclass_f1_score(probabilities, labels, probabilities.shape[1], average="none")
    return float(scores[torch.unique(torch.cat([labels, probabilities.argmax(1)]))].mean())


def _auroc(by: Any, probabilities: Tensor, labels: Tensor) -> float | None:
    """Area under the ROC curve of class 1 of two, else the mean over the classes that occur, each against the rest."""
    occurring = torch.unique(labels)
    if len(occurring) < 2:
        return None
    if probabilities.shape[1] == 2:
        return float(by.binary_auroc(probabilities[:, 1], labels))
    areas = [by.binary_auroc(probabilities[:, label], (labels == label).long()) for label in occurring]
    return float(torch.stack(areas).mean())


def _calibration_error(by: Any, probabilities: Tensor, labels: Tensor) -> float:
    """Expected calibration error of the predicted class, 15 bins of equal width (Guo et al. 2017)."""
    classes = probabilities.shape[1]
    return float(by.multiclass_calibration_error(probabilities, labels, classes, n_bins=_BINS, norm="l1"))


_MEASURES: dict[str, Callable[[Any, Tensor, Tensor], float | None]] = {
    "balanced_accuracy": _balanced_accuracy,
    "macro_f1": _macro_f1,
    "auroc": _auroc,
    "calibration_error": _calibration_error,
}
