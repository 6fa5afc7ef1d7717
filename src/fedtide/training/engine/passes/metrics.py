"""Scores beside accuracy and loss: of classifiers, and of models whose task has no classes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fedtide.core.array_types import Bools, Ints
from fedtide.settings.scores import TaskName
from fedtide.training.engine.passes.evaluation import evaluate, predict
from fedtide.training.resources.workers import Workers
from fedtide.world.dataset import Dataset, Scales, restored

METRICS = ("balanced_accuracy", "macro_f1", "auroc", "average_precision", "calibration_error")
"""Names, as in ``evaluation.metrics``; log loss is ``loss``, which is always recorded."""

_BINS = 15


def measure(names: Sequence[str], logits: Tensor, labels: Tensor) -> dict[str, float | None]:
    """Some of :data:`METRICS` for logits [n, L], by name; ``None`` where the samples do not determine one."""
    if not names or not len(labels):
        return dict.fromkeys(names)
    probabilities = torch.softmax(logits.to(torch.float64), 1)
    return {name: _MEASURES[name](probabilities, labels) for name in names}


def _library() -> Any:
    from torchmetrics.functional import classification  # with Matplotlib, which takes long to import

    return classification


def _balanced_accuracy(probabilities: Tensor, labels: Tensor) -> float:
    """Mean over the classes that occur of the share of their samples that are predicted correctly."""
    recalls = _library().multiclass_recall(probabilities, labels, probabilities.shape[1], average="none")
    return float(recalls[torch.unique(labels)].mean())


def _macro_f1(probabilities: Tensor, labels: Tensor) -> float:
    """Mean over the classes that occur, or are predicted, of the harmonic mean of precision and recall."""
    scores = _library().multiclass_f1_score(probabilities, labels, probabilities.shape[1], average="none")
    return float(scores[torch.unique(torch.cat([labels, probabilities.argmax(1)]))].mean())


def _against_rest(score: Callable[[Tensor, Tensor], float], probabilities: Tensor, labels: Tensor) -> float | None:
    """A score of class 1 of two, else its mean over the classes that occur, each against the rest; none of a single one."""
    occurring = torch.unique(labels)
    if len(occurring) < 2:
        return None
    if probabilities.shape[1] == 2:
        return score(probabilities[:, 1], labels == 1)
    return fmean(score(probabilities[:, label], labels == label) for label in occurring)


def _area(scores: Tensor, positive: Tensor) -> float:
    """Share of the pairs of a positive and a negative sample in which the positive one has the higher score, ties as a half.

    By ranks (Mann and Whitney 1947), which for the few samples of a client is several times as fast as by its curve. ``scores``
    and ``positive``: [n], with samples of both kinds.
    """
    _, place, count = torch.unique(scores, return_inverse=True, return_counts=True)
    ranks = count.cumsum(0) - (count - 1) / 2  # from 1, the mean one of equal scores
    found = int(positive.sum())
    above = float(ranks[place][positive].sum(dtype=torch.float64)) - found * (found + 1) / 2
    return above / (found * (len(positive) - found))


def _precision(scores: Tensor, positive: Tensor) -> float:
    """Average precision: the mean over the positive samples of the precision among all with at least their score."""
    _, place, count = torch.unique(-scores, return_inverse=True, return_counts=True)
    found = torch.zeros(len(count), dtype=torch.float64).index_add_(0, place, positive.to(torch.float64))
    return float((found * found.cumsum(0) / count.cumsum(0)).sum() / found.sum())


def _calibration_error(probabilities: Tensor, labels: Tensor) -> float:
    """Expected calibration error of the predicted class, 15 bins of equal width (Guo et al. 2017)."""
    classes = probabilities.shape[1]
    return float(_library().multiclass_calibration_error(probabilities, labels, classes, n_bins=_BINS, norm="l1"))


_MEASURES: dict[str, Callable[[Tensor, Tensor], float | None]] = {
    "balanced_accuracy": _balanced_accuracy,
    "macro_f1": _macro_f1,
    "auroc": partial(_against_rest, _area),
    "average_precision": partial(_against_rest, _precision),
    "calibration_error": _calibration_error,
}


@dataclass(frozen=True)
class Fit:
    """Outputs of one model on some samples of a regression or multilabel task, and their scores; float64 [n, T], CPU.

    The loss is that of all objectives: mean squared error of a regression, binary cross-entropy of a multilabel task.
    ``scales``: of standardized targets; their mean absolute error is in their own units, the loss in squared deviations.
    """

    task: TaskName
    outputs: Tensor
    labels: Tensor
    scales: Scales = ()

    @property
    def losses(self) -> Tensor:
        """Loss of each sample, the mean over its targets or labels, float64 [n]."""
        if self.task == "regression":
            return (self.outputs - self.labels).square().mean(1)
        return (functional.softplus(self.outputs) - self.labels * self.outputs).mean(1)

    def mean_loss(self, view: Bools | None = None) -> float | None:
        """Mean of the losses, ``None`` without samples; classes in ``view`` do not matter."""
        return float(self.losses.mean()) if len(self.labels) else None

    def row(self, view: Bools | None = None) -> dict[str, float | None]:
        """The scores that every run of the task records, by name; ``None`` where the samples do not determine one."""
        if self.task == "regression":
            outputs, labels = (restored(values, self.scales) for values in (self.outputs, self.labels))
            scores = {"r2": r_squared(self.outputs, self.labels), "mae": mean_absolute_error(outputs, labels)}
        else:
            scores = {"mean_ap": mean_average_precision(self.outputs, self.labels)}
        return {**scores, "loss": self.mean_loss()}


def recorded(data: Dataset, outputs: Tensor, labels: Tensor) -> dict[str, float | None]:
    """The scores that every run on data records, by name, of outputs [n, L], float64 on the CPU; ``None`` without samples."""
    if data.task != "classification":
        return Fit(data.task, outputs, labels, data.standardized).row()
    if not len(labels):
        return {"accuracy": None, "loss": None}
    hits = (outputs.max(1).indices == labels).sum().item()
    return {"accuracy": hits / len(labels), "loss": float(functional.cross_entropy(outputs, labels))}


def fit(workers: Workers, w: Tensor, b: Tensor, inputs: Tensor, labels: Tensor, batch: int) -> Fit:
    """Apply a model, or an ensemble that averages its outputs; arguments as for ``evaluate``."""
    outputs = predict(workers, w, b, inputs, batch)
    data = workers.task.data
    return Fit(data.task, outputs, labels.to("cpu", torch.float64), data.standardized)


def mean_losses(workers: Workers, models: Tensor, b: Tensor, shards: Sequence[Ints], batch: int) -> Tensor:
    """Mean loss [n, M], on the run's device, of each of some models [M, d] on each client's training samples.

    Cross-entropy, or the loss of a task without classes (:class:`Fit`). ``b`` [q] are floating buffers, ``shards`` positions in
    the training set. A client without samples has infinite losses.
    """
    task, sizes = workers.task, torch.tensor([len(shard) for shard in shards])
    positions = torch.cat([torch.zeros(0, dtype=torch.int64), *map(torch.from_numpy, shards)]).to(task.device)
    losses = torch.full((len(shards), len(models)), torch.inf, dtype=torch.float64)
    if len(positions):
        inputs, labels = task.data.read("train", positions)
        owners = torch.repeat_interleave(torch.arange(len(shards)), sizes)
        for number, w in enumerate(models):
            if task.data.task == "classification":
                sums = evaluate(workers, w, b, inputs, labels, batch, groups=owners.to(positions.device)).loss
            else:
                own = fit(workers, w, b, inputs, labels, batch).losses
                sums = torch.zeros(len(shards), dtype=torch.float64).index_add_(0, owners, own)
            held = sizes[: len(sums)] > 0
            losses[: len(sums), number] = torch.where(held, sums / sizes[: len(sums)].clamp(min=1), torch.inf)
    return losses.to(models)


def r_squared(outputs: Tensor, labels: Tensor) -> float | None:
    """R² of outputs [n, T]: 1 - squared errors / squared deviations from the mean, averaged over the targets that vary."""
    if not len(labels):
        return None
    deviations = (labels - labels.mean(0)).square().sum(0)
    varying = deviations > 0
    if not bool(varying.any()):
        return None
    errors = (outputs - labels).square().sum(0)
    return float((1 - errors[varying] / deviations[varying]).mean())


def mean_absolute_error(outputs: Tensor, labels: Tensor) -> float | None:
    """Mean absolute error over samples and targets; arguments as for :func:`r_squared`."""
    return float((outputs - labels).abs().mean()) if len(labels) else None


def mean_average_precision(outputs: Tensor, labels: Tensor) -> float | None:
    """Mean of the average precisions (outputs: logits [n, T]) of the labels, 0 or 1, that some sample has (macro average)."""
    from torchmetrics.functional.classification import binary_average_precision  # with Matplotlib, slow to import

    occurring = torch.nonzero(labels.sum(0)).flatten().tolist()
    if not occurring:
        return None
    probabilities, positive = outputs.sigmoid(), labels.long()
    found = [binary_average_precision(probabilities[:, label], positive[:, label]) for label in occurring]
    return float(torch.stack(found).mean())
