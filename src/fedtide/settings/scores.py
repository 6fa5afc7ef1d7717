"""Scores of a model on held-out samples: columns of a history are a split and a score, ``test_auroc``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

TaskName = Literal["classification", "regression", "multilabel"]
"""What is learned of a sample: one of several classes, numbers, or which of several labels it has."""

_NEXT, _SERVED = "_next", "served_"
_MEASURES = (
    *("accuracy", "loss", "balanced_accuracy", "macro_f1", "auroc", "average_precision", "calibration_error"),
    *("r2", "mae", "mean_ap"),
)

SCORES = tuple(f"{served}{name}{ahead}" for served, ahead, name in product(("", _SERVED), ("", _NEXT), _MEASURES))
"""``_next``: on the samples of the next period, which has not been trained on. ``served_``: of the models that clients are
served, each sample by its owner's, at the end of a period; the others are of the global model."""

ScoreName: Any = Literal[SCORES]

RECORDED: Mapping[TaskName, tuple[str, ...]] = {
    "classification": ("accuracy", "loss"),
    "regression": ("r2", "mae", "loss"),
    "multilabel": ("mean_ap", "loss"),
}
"""Scores that every run of a task records, its main score first."""

OVER_CLIENTS = {"_mean": "mean {} of clients", "_worst_decile": "{} of the worst decile of clients"}
"""Of what clients are served also over clients, each on its own samples, by the end of the score's name."""

_LOWER = ("loss", "calibration_error", "mae")
_NO_SHARE = ("loss", "r2", "mae")
_OF_CLIENTS = {
    "accuracy_mean": "mean accuracy of clients",
    "accuracy_newcomers": "accuracy of newcomers",
    "accuracy_worst_decile": "accuracy of the worst decile of clients",
}
"""Scores of clients in a search, by the end of their column's name."""
OF_ERASED = ("excess", "memory_left", "gap_left")
"""Measures of erased clients in a search, by the end of their column's name; the best value is 0."""
_WORDS = _OF_CLIENTS | {
    "auroc": "AUROC",
    "macro_f1": "macro F1",
    "r2": "R²",
    "mae": "mean absolute error",
    "mean_ap": "mean average precision",
}


@dataclass(frozen=True)
class Score:
    """One score; ``name`` as in :data:`SCORES`."""

    name: str

    @property
    def ahead(self) -> bool:
        """Whether it is measured on the next period."""
        return self.name.endswith(_NEXT)

    @property
    def served(self) -> bool:
        """Whether it is one of the models that clients are served."""
        return self.name.startswith(_SERVED)

    @property
    def over_clients(self) -> bool:
        """Whether it is a mean, or of the worst decile, over the clients that are served."""
        return self._over != "{}"

    @property
    def of_global(self) -> Score:
        """The same of the global model."""
        return Score(self._measure + (_NEXT if self.ahead else ""))

    @property
    def of_served(self) -> Score:
        """The same of the models that clients are served."""
        return self if self.served else Score(f"{_SERVED}{self.name}")

    @property
    def present(self) -> Score:
        """The same on the samples of the period itself."""
        return Score(self._base)

    @property
    def metric(self) -> str | None:
        """What ``evaluation.metrics`` has to list; None for what is always recorded."""
        base = self._measure
        return None if self.of_clients or self.of_erased or any(base in names for names in RECORDED.values()) else base

    def fits(self, task: TaskName) -> bool:
        classifies = task == "classification" and (self.metric is not None or self.of_clients)
        return self._measure in RECORDED[task] or classifies or self.of_erased

    @property
    def of_clients(self) -> bool:
        """Whether it is one over clients, which are then evaluated."""
        return self.name in _OF_CLIENTS

    @property
    def of_erased(self) -> bool:
        """Whether it measures what erased clients have left; its absolute value counts."""
        return self.name in OF_ERASED

    @property
    def words(self) -> str:
        words = _WORDS.get(self._measure, self._measure.replace("_", " "))
        if self.served:
            words = self._over.format(f"served {words}")
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
        return self._measure in _LOWER or self.of_erased

    @property
    def sign(self) -> int:
        """Factor that makes higher values better."""
        return -1 if self.lower else 1

    @property
    def share(self) -> bool:
        """Whether it lies in [0, 1] and is shown in percent."""
        return self._measure not in _NO_SHARE

    def shown(self, value: float) -> str:
        """A value in a line of progress, of constant width as far as possible."""
        return f"{value:6.1%}" if self.share else f"{value:7.4f}"

    @property
    def remedy(self) -> str:
        """What makes a run record it."""
        needed = ["use scenario calendar with next_period: 1"] if self.ahead else []
        if self.served:
            needed.append("use data whose samples have owners")
        if self.metric is not None:
            needed.insert(0, f"add {self.metric} to evaluation.metrics")
        return " and ".join(needed) or "evaluate on this split"

    @property
    def _base(self) -> str:
        return self.name.removesuffix(_NEXT)

    @property
    def _measure(self) -> str:
        """What is measured, of whichever model and over whomever."""
        ends = [end for end in OVER_CLIENTS if self.served and self._base.endswith(end)]
        return self._base.removeprefix(_SERVED).removesuffix(ends[0] if ends else "")

    @property
    def _over(self) -> str:
        return next((words for end, words in OVER_CLIENTS.items() if self._base.endswith(end)), "{}")


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
