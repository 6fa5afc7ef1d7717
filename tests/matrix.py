"""Cases of a matrix, and which of them are quick."""

from collections.abc import Collection, Sequence
from itertools import product
from typing import Any

import pytest


def matrix(*factors: Sequence[Any], without: Collection[tuple[Any, ...]] = ()) -> list[Any]:
    """All combinations of the values of some factors, but for those ``without`` sense, for ``pytest.mark.parametrize``.

    Quick are as many as the longest factor has values: the factors advance together, and shorter ones begin again, so that
    each value of each factor occurs. All others are slow.
    """
    together = [tuple(factor[n % len(factor)] for factor in factors) for n in range(max(map(len, factors)))]
    cases = [case for case in product(*factors) if case not in without]
    return [pytest.param(*case, marks=() if case in together else pytest.mark.slow) for case in cases]
