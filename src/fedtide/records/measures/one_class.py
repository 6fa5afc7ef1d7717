"""Models that tell no class from another, which accuracies hide where one class has most of the samples."""

import math
from collections.abc import Sequence


def only_class(accuracy: Sequence[float]) -> int | None:
    """The class whose test samples are all predicted correctly while none of another class is, as by a constant prediction.

    ``accuracy``: of each class, NaN where it has no test samples. None otherwise, or if a single class has samples.
    """
    known = {label: value for label, value in enumerate(accuracy) if not math.isnan(value)}
    right = [label for label, value in known.items() if value == 1]
    return right[0] if len(known) > 1 and len(right) == 1 and sum(known.values()) == 1 else None


def described(name: str, share: float) -> str:
    """What is said of such a model, given the name of the class and its share of the test samples, which is the accuracy."""
    return (
        f"the final model is right on all test samples of class {name!r}, {share:.0%} of all, and on no other, as if it always "
        "predicted that class; use evaluation.metrics, such as balanced_accuracy, auroc and average_precision"
    )
