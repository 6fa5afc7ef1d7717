"""Scores of a model on held-out samples: columns of a history are a split and a score, ``test_auroc``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

TaskName = Literal["classification", "regression", "multilabel"]
"""What is learned of a sample: one of several classes, numbers, or which of several labels it has."""

ScoreName = Literal[
    "accuracy", "loss", "balanced_accuracy", "macro_f1", "auroc", "calibration_error", "r2", "mae", "mean_ap",
    "accuracy_next", "loss_next", "balanced_accuracy_next", "macro_f1_next", "auroc_next", "calibration_error_next",
    "r2_next", "mae_next", "mean_ap_next",
]  # fmt: skip
"""``_next``: on the samples of the next period, which has not been trained on."""

RECORDED: Mapping[TaskName, tuple[str, ...]] = {
    "classification": ("accuracy", "loss"),
    "regression": ("r2", "mae", "loss"),
    "multilabel": ("mean_ap", "loss"),
}
"""Scores that every run of a task records, its main score first."""

_NEXT = "_next"
_LOWER = ("loss", "calibration_error", "mae")
_NO_SHARE = ("loss", "r2", "mae")
_OF_CLIENTS = {
    "accuracy_mean": "mean accuracy of clients",
    "accuracy_newcomers": "accuracy of newcomers",
    "accuracy_worst_decile": "accuracy of the worst decile of clients",
}
"""Scores of clients in a search, by the end of their column's name."""
_WORDS = _OF_CLIENTS | {
    "auroc": "AUROC",
    "macro_f1": "macro F1",
    "r2": "R²",
    "mae": "mean absolute error",
    "mean_ap": "mean average precision",
}


@dataclass(frozen=True)
class Score:
    """One score; ``name`` as in :data:`ScoreName`."""

    name: str

    @property
    def ahead(self) -> bool:
        """Whether it is measured on the next period."""
        return self.name.endswith(_NEXT)

    @property
    def present(self) -> Score:
        """The same on the samples of the period itself."""
        return Score(self._base)

    @property
    def metric(self) -> str | None:
        """What ``evaluation.metrics`` has to list; None for what is always recorded."""
        base = self._base
        return None if self.of_clients or any(base in names for names in RECORDED.values()) else base

    def fits(self, task: TaskName) -> bool:
        classifies = task == "classification" and (self.metric is not None or self.of_clients)
        return self._base in RECORDED[task] or classifies

    @property
    def of_clients(self) -> bool:
        """Whether it is one over clients, which are then evaluated."""
        return self.name in _OF_CLIENTS

    @property
    def words(self) -> str:
        words = _WORDS.get(self._base, self._base.replace("_", " "))
        return f"{words} on the next period" if self.ahead else words

    @property
    def title(self) -> str:
        return capitalized(self.words)

    @property
    def mean_next(self) -> str:
        """Name of its mean over the next periods, in summaries, tables and trackers: ``mean_next_accuracy``."""
        return f"mean_next_{self._base}"

    @property
    def next(self) -> Score:
        """The same on the next period."""
        return Score(self._base + _NEXT)

    @property
    def lower(self) -> bool:
        return self._base in _LOWER

    @property
    def sign(self) -> int:
        """Factor that makes higher values better."""
        return -1 if self.lower else 1

    @property
    def share(self) -> bool:
        """Whether it lies in [0, 1] and is shown in percent."""
        return self._base not in _NO_SHARE

    def shown(self, value: float) -> str:
        """A value in a line of progress, of constant width as far as possible."""
        return f"{value:6.1%}" if self.share else f"{value:7.4f}"

    @property
    def remedy(self) -> str:
        """What makes a run record it."""
        needed = ["use scenario calendar with next_period: 1"] if self.ahead else []
        if self.metric is not None:
            needed.insert(0, f"add {self.metric} to evaluation.metrics")
        return " and ".join(needed) or "evaluate on this split"

    @property
    def _base(self) -> str:
        return self.name.removesuffix(_NEXT)


def score_of(column: str) -> Score:
    """The score of a history's column: ``validation_auroc`` is an AUROC."""
    return Score(column.partition("_")[2])


def capitalized(words: str) -> str:
    """``words`` with a capital first letter, other letters as they are."""
    return words[:1].upper() + words[1:]


ACCURACY = Score("accuracy")


def main_score(task: TaskName = "classification") -> Score:
    """The score that tables, figures and searches are about unless another one is asked for."""
    return Score(RECORDED[task][0])
