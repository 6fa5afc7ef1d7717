"""Cases of a matrix, and which of them are quick."""

from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest


def matrix(*factors: Iterable[Any]) -> list[Any]:
    """All combinations of the values of some factors, for ``pytest.mark.parametrize``.

    Quick are as many as the longest factor has values: the factors advance together, and shorter ones begin again, so that
    each value of each factor occurs. All others are slow.
    """
    values = [list(factor) for factor in factors]
    together = [tuple(each[n % len(each)] for each in values) for n in range(max(map(len, values)))]
    return [pytest.param(*case, marks=() if case in together else pytest.mark.slow) for case in product(*values)]
