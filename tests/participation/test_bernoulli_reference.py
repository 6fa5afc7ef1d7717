"""The cohorts of the released code, number by number."""

from typing import Any

import numpy as np
import pytest

from fedtide.core import plugins

PUBLISHED = [
    (100, 0.15, 0, [14, 15, 16, 24, 26, 34, 43, 47, 53, 61, 63, 67, 69, 75, 77, 79, 82, 87, 92, 97, 99]),
    (100, 0.15, 2, [1, 12, 19, 21, 23, 24, 27, 51, 55, 57, 67, 77, 81, 89, 91]),
    (100, 0.10, 0, [14, 15, 16, 34, 43, 67, 69, 75, 82, 87, 97, 99]),
    (100, 0.10, 1, [2, 5, 14, 26, 27, 30, 38, 50, 55, 64, 98]),
    (500, 0.02, 0, [34, 99, 126, 166, 173, 262, 283, 309, 398, 410, 417]),
    (500, 0.02, 2, [77, 126, 188, 203, 298, 325, 356, 397, 464]),
]


def rule(probability: float) -> Any:
    """The rule."""
    cls = plugins.load("participation", "bernoulli_reference")
    return cls(cls.Settings(probability=probability))


@pytest.mark.parametrize(("clients", "p", "t", "cohort"), PUBLISHED)
def test_published_cohorts(clients: int, p: float, t: int, cohort: list[int]) -> None:
    assert rule(p).draw(np.arange(clients), t, 0).tolist() == cohort


def test_an_empty_draw_takes_the_next_seed() -> None:
    """Of two clients at 5 %, the first seed from t on that lets somebody join decides."""
    for t in range(20):
        seed = next(s for s in range(t, 1000) if (np.random.RandomState(s).uniform(size=2) <= 0.05).any())
        expected = np.flatnonzero(np.random.RandomState(seed).uniform(size=2) <= 0.05)
        assert np.array_equal(rule(0.05).draw(np.arange(2), t, 0), expected)
