"""How far a group's pooled labels are from the population's."""

from __future__ import annotations

import numpy as np

from fedtide.selection.base import Floats

TOLERANCE = 1e-12
"""Values closer than this are equal: equal divergences differ in their last bits."""


def divergence(counts: Floats, population: Floats) -> Floats:
    """KL(p || q) in nats of pooled label counts from the population's shares (DynamicFL, eq. 1), with 0 log 0 = 0.

    Args:
        counts: [..., L], pooled counts of groups with at least one sample.
        population: q [L]; a class the population lacks makes groups that have it infinitely far.

    Returns:
        [...].
    """
    p = counts / counts.sum(-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(p > 0, p * np.log(p / population), 0.0)
    values: Floats = terms.sum(-1)
    return values
