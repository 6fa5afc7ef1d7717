"""Parts around the prior: sizes, disjointness, and the statistics that tell the two readings of alpha apart."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.world.partitions.dirichlet_prior import draw_parts

LABELS = np.repeat(np.arange(10), 400)


def parts(number, size, alpha, scale="prior", seed=0, labels=LABELS):
    return draw_parts(labels, number, size, alpha, scale, np.random.default_rng(seed))


@given(
    st.integers(1, 12),
    st.integers(1, 30),
    st.floats(1e-3, 50),
    st.sampled_from(["prior", "per_class"]),
    st.integers(0, 5),
)
@settings(max_examples=40, deadline=None)
def test_parts_are_disjoint_and_of_one_size(number, size, alpha, scale, seed):
    labels = np.repeat(np.arange(4), 90)
    found = parts(number, size, alpha, scale, seed, labels)
    assert [len(part) for part in found] == [size] * number
    positions = np.concatenate(found)
    assert len(np.unique(positions)) == number * size
    assert 0 <= positions.min() <= positions.max() < len(labels)


@pytest.mark.parametrize(
    ("alpha", "scale", "classes", "largest"),
    [
        (0.1, "prior", 1.5, 0.95),
        (0.2, "prior", 2.0, 0.90),
        (0.1, "per_class", 4.6, 0.67),
        (0.2, "per_class", 6.4, 0.53),
    ],
)
def test_classes_and_largest_share_of_parts_of_238(alpha, scale, classes, largest):
    """Each part is the first one of a world of its own, so none suffers from what others have taken."""
    counts = np.array([np.bincount(LABELS[parts(1, 238, alpha, scale, seed)[0]], minlength=10) for seed in range(600)])
    assert (counts > 0).sum(1).mean() == pytest.approx(classes, rel=0.05)
    assert (counts.max(1) / 238).mean() == pytest.approx(largest, rel=0.05)


@pytest.mark.slow
def test_the_counts_have_the_law_of_sample_by_sample_draws():
    """Two classes, one of them scarce: the whole distribution of a part's counts against the loop of Algorithm 5."""
    labels, runs = np.repeat(np.arange(2), (6, 3)), 6000
    rng = np.random.default_rng(3)
    looped = np.zeros(4)
    for _ in range(runs):
        theta, left, taken = rng.dirichlet(1.5 * np.array([6, 3]) / 9), [6, 3], [0, 0]
        for _ in range(4):
            chances = np.where(np.array(left) > 0, theta, 0)
            label = rng.choice(2, p=chances / chances.sum())
            left[label] -= 1
            taken[label] += 1
        looped[taken[1]] += 1
    ours = np.bincount(
        [int((labels[draw_parts(labels, 1, 4, 1.5, "prior", rng)[0]] == 1).sum()) for _ in range(runs)], minlength=4
    )
    assert ours / runs == pytest.approx(looped / runs, abs=0.03)
