"""How far a group's pooled labels are from the population's."""

from __future__ import annotations

import numpy as np

from fedtide.core.array_types import Floats

TOLERANCE = 1e-12  # values closer than this are equal: equal divergences differ in their last bits


def divergence(counts: Floats, population: Floats) -> Floats:
    """KL(p || q) = sum_c p_c ln(p_c / q_c) of pooled label counts [..., L] from the population's shares q [L] (eq. 1).

    Every group has a sample. A class the population lacks makes groups that have it infinitely far; 0 ln 0 = 0.
    """
    p = counts / counts.sum(-1, keepdims=True)  # eq. 1
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(p > 0, p * np.log(p / population), 0.0)
    values: Floats = terms.sum(-1)
    return values
