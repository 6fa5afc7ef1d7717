"""Which labels each group of devices may hold, for a given overlap between neighboring groups."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from fractions import Fraction
from math import floor

from fedtide.core.errors import SettingsError


def parse_overlap(value: float | str) -> Fraction:
    """A decimal number in [0, 1) as an exact fraction, so that 0.2 is 1/5 and rounding moves no label."""
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        number = Decimal("nan")
    if not (number.is_finite() and 0 <= number < 1):
        raise SettingsError(f"label_overlap should be a decimal number from 0 to below 1, e.g. 0.2, got {value!r}")
    return Fraction(number)


def label_groups(num_classes: int, groups: int, overlap: Fraction) -> list[range]:
    """Consecutive labels of each group, for ``num_classes`` labels 0, 1, ... and any number of groups.

    Every group has G labels and shares O = floor(overlap G) of them with the next one. G is the largest size for which all
    groups fit, G + (groups - 1) (G - O) <= num_classes (for two groups floor(num_classes / (2 - overlap)), Chang et al.
    2025); labels beyond the last group are not used. If O = 0, the labels are divided without overlap: group j has labels
    floor(j L / groups) up to floor((j + 1) L / groups).

    Raises:
        SettingsError: more groups than labels.
    """
    if groups > num_classes:
        raise SettingsError(
            f"groups = {groups} is too large: {num_classes} labels; the largest feasible value is {num_classes}"
        )
    reach = ((G, G + (groups - 1) * (G - floor(overlap * G))) for G in range(1, num_classes + 1))
    size = max(G for G, needed in reach if needed <= num_classes)
    shared = floor(overlap * size)
    if shared == 0:
        return [range(j * num_classes // groups, (j + 1) * num_classes // groups) for j in range(groups)]
    return [range(j * (size - shared), j * (size - shared) + size) for j in range(groups)]
