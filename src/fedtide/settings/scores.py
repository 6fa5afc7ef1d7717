"""Scores of a model on held-out samples: columns of a history are a split and a score, ``test_auroc``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ScoreName = Literal[
    "accuracy", "loss", "balanced_accuracy", "macro_f1", "auroc", "calibration_error",
    "accuracy_next", "loss_next", "balanced_accuracy_next", "macro_f1_next", "auroc_next", "calibration_error_next",
]  # fmt: skip
"""``_next``: on the samples of the next period, which has not been trained on."""

_NEXT = "_next"
_ALWAYS = ("accuracy", "loss")
_LOWER = ("loss", "calibration_error")
_WORDS = {"auroc": "AUROC", "macro_f1": "macro F1"}


@dataclass(frozen=True)
class Score:
    """One score.

    Attributes:
        name: as in ``ScoreName``.
    """

    name: str

    @property
    def ahead(self) -> bool:
        """Whether it is measured on the next period."""
        return self.name.endswith(_NEXT)

    @property
    def metric(self) -> str | None:
        """What ``evaluation.metrics`` has to list; None for what is always recorded."""
        base = self._base
        return None if base in _ALWAYS else base

    @property
    def words(self) -> str:
        """Its name inside a sentence."""
        words = _WORDS.get(self._base, self._base.replace("_", " "))
        return f"{words} on the next period" if self.ahead else words

    @property
    def title(self) -> str:
        """Its name at the beginning of a line."""
        return capitalised(self.words)

    @property
    def lower(self) -> bool:
        """Whether lower values are better."""
        return self._base in _LOWER

    @property
    def sign(self) -> int:
        """Factor that makes higher values better."""
        return -1 if self.lower else 1

    @property
    def share(self) -> bool:
        """Whether it lies in [0, 1] and is shown in percent."""
        return self._base != "loss"

    @property
    def remedy(self) -> str:
        """What makes a run record it."""
        needed = ["use scenario calendar with ahead: 1"] if self.ahead else []
        if self.metric is not None:
            needed.insert(0, f"add {self.metric} to evaluation.metrics")
        return " and ".join(needed) or "evaluate on this split"

    @property
    def _base(self) -> str:
        return self.name.removesuffix(_NEXT)


def score_of(column: str) -> Score:
    """The score of a history's column: ``validation_auroc`` is an AUROC."""
    return Score(column.partition("_")[2])


def capitalised(words: str) -> str:
    """``words`` with a capital first letter, other letters as they are."""
    return words[:1].upper() + words[1:]


ACCURACY = Score("accuracy")
