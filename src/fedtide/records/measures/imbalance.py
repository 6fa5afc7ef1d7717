"""Accuracy on frequent and rare classes of a long-tailed training set."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedtide.records.measures.metrics import mean

GROUPS = ("head", "middle", "tail")
METRICS = (*GROUPS, "worst")


def groups(settings: Mapping[str, Any], classes: int) -> dict[str, list[int]]:
    """Classes of ``head`` (the ceil(0.3 L) most frequent), ``tail`` (as many of the rarest) and ``middle``; empty if balanced.

    ``settings`` are those of a run, flat; ``long_tail.order`` lists the L ``classes`` by frequency.
    """
    if settings.get("long_tail.imbalance") in (None, 1.0):
        return {}
    order = settings.get("long_tail.order")
    ranks = list(range(classes)) if order is None else list(order)
    size = math.ceil(0.3 * classes)
    return {"head": ranks[:size], "middle": ranks[size : classes - size], "tail": ranks[classes - size :]}


def accuracies(per_class: Sequence[float], settings: Mapping[str, Any]) -> dict[str, float]:
    """Mean accuracy of each group and accuracy of the worst class [share], from accuracies by class (NaN: no test samples)."""
    values = np.asarray(per_class, dtype=np.float64)
    found = groups(settings, len(values))
    if not found or np.isnan(values).all():
        return dict.fromkeys(METRICS, math.nan)
    return {name: mean(values[found[name]]) for name in GROUPS} | {"worst": float(np.nanmin(values))}
