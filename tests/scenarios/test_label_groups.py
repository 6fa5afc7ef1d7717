"""Label groups: the published table, the formula for two groups, and its generalization."""

from fractions import Fraction
from itertools import pairwise
from math import floor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.core.errors import SettingsError
from fedtide.world.scenarios.sessions import label_groups, parse_overlap

HUNDREDTHS = st.integers(0, 99).map(lambda number: f"0.{number:02d}")


@pytest.mark.parametrize(
    ("classes", "overlap", "first", "second"),
    [
        (10, "0.0", (0, 4), (5, 9)),
        (10, "0.2", (0, 4), (4, 8)),
        (10, "0.8", (0, 7), (2, 9)),
        (4, "0.2", (0, 1), (2, 3)),
        (4, "0.8", (0, 2), (1, 3)),
        (200, "0.0", (0, 99), (100, 199)),
        (200, "0.2", (0, 110), (89, 199)),
        (200, "0.8", (0, 165), (34, 199)),
    ],
)
def test_published_splits(classes, overlap, first, second):
    for value in (overlap, float(overlap)):
        groups = label_groups(classes, 2, parse_overlap(value))
        assert [(group[0], group[-1]) for group in groups] == [first, second]


@given(classes=st.integers(2, 250), overlap=HUNDREDTHS)
@settings(max_examples=150, deadline=None)
def test_two_groups_follow_the_published_rule(classes, overlap):
    share = Fraction(overlap)
    size = floor(classes / (2 - share))
    shared = floor(size * share)
    if shared == 0:
        expected = [range(classes // 2), range(classes // 2, classes)]
    else:
        expected = [range(size), range(size - shared, 2 * size - shared)]
    assert label_groups(classes, 2, share) == expected


@given(classes=st.integers(1, 120), groups=st.integers(1, 8), overlap=HUNDREDTHS)
@settings(max_examples=150, deadline=None)
def test_any_number_of_groups(classes, groups, overlap):
    """Equal shared parts between neighbors, all labels in range, and without overlap a partition of them."""
    if groups > classes:
        with pytest.raises(SettingsError, match=f"^groups = {groups} .*largest feasible value is {classes}$"):
            label_groups(classes, groups, Fraction(overlap))
        return
    found = label_groups(classes, groups, Fraction(overlap))
    assert found[0][0] == 0
    assert found[-1][-1] <= classes - 1
    shared = {len(set(left) & set(right)) for left, right in pairwise(found)}
    assert len(shared) <= 1
    if shared == {0}:
        assert [label for group in found for label in group] == list(range(classes))
        assert max(map(len, found)) - min(map(len, found)) <= 1
    elif shared:
        assert len({len(group) for group in found}) == 1
        assert shared == {floor(len(found[0]) * Fraction(overlap))}


def test_decimals_are_exact():
    """0.29 * 100 is 28.999... in floating point; as a fraction it is 29."""
    assert parse_overlap(0.29) == parse_overlap("0.29") == Fraction(29, 100)
    assert floor(parse_overlap(0.29) * 100) == 29
