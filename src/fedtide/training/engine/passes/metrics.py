"""Metrics of a classifier beside accuracy and loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

METRICS = ("balanced_accuracy", "macro_f1", "auroc", "calibration_error")
"""Names, as in ``evaluation.metrics``; log loss is ``loss``, which is always recorded."""

_BINS = 15


def measure(names: Sequence[str], logits: Tensor, labels: Tensor) -> dict[str, float | None]:
    """Some of :data:`METRICS` for logits [n, L], by name; ``None`` where the samples do not determine one."""
    probabilities = torch.softmax(logits.to(torch.float64), 1)
    return {name: _MEASURES[name](probabilities, labels) if len(labels) else None for name in names}


def balanced_accuracy(probabilities: Tensor, labels: Tensor) -> float:
    """Mean over the classes that occur of the share of their samples that are predicted correctly."""
    from torchmetrics.functional import classification  # with Matplotlib, which takes long to import

    recalls = classification.multiclass_recall(probabilities, labels, probabilities.shape[1], average="none")
    return float(recalls[torch.unique(labels)].mean())


def macro_f1(probabilities: Tensor, labels: Tensor) -> float:
    """Mean over the classes that occur, or are predicted, of the harmonic mean of precision and recall."""
    from torchmetrics.functional import classification  # with Matplotlib, which takes long to import

    scores = classification.multiclass_f1_score(probabilities, labels, probabilities.shape[1], average="none")
    return float(scores[torch.unique(torch.cat([labels, probabilities.argmax(1)]))].mean())


def auroc(probabilities: Tensor, labels: Tensor) -> float | None:
    """Area under the ROC curve of class 1 of two, else the mean over the classes that occur, each against the rest."""
    from torchmetrics.functional import classification  # with Matplotlib, which takes long to import

    occurring = torch.unique(labels)
    if len(occurring) < 2:
        return None
    if probabilities.shape[1] == 2:
        return float(classification.binary_auroc(probabilities[:, 1], labels))
    areas = [classification.binary_auroc(probabilities[:, label], (labels == label).long()) for label in occurring]
    return float(torch.stack(areas).mean())


def calibration_error(probabilities: Tensor, labels: Tensor) -> float:
    """Expected calibration error of the predicted class, 15 bins of equal width (Guo et al. 2017)."""
    from torchmetrics.functional import classification  # with Matplotlib, which takes long to import

    return float(
        classification.multiclass_calibration_error(
            probabilities, labels, probabilities.shape[1], n_bins=_BINS, norm="l1"
        )
    )


_MEASURES: dict[str, Callable[[Tensor, Tensor], float | None]] = {
    "balanced_accuracy": balanced_accuracy,
    "macro_f1": macro_f1,
    "auroc": auroc,
    "calibration_error": calibration_error,
}
