import math

import pytest

from fedtide.report import formats


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (80_808_000, "80.8 MB"),
        (161_616_000, "162 MB"),
        (999_700_000, "1000 MB"),
        (1.5e9, "1.5 GB"),
        (2e15, "2 PB"),
        (3e19, "30000 PB"),
        (math.inf, "not reached"),
    ],
)
def test_bytes(count, text):
    assert formats.human_bytes(count) == text


def test_spread_is_left_out_where_there_is_none():
    assert formats.percent(0.8343, 0.0119) == "83.4 ± 1.2"
    assert formats.percent(0.8343) == "83.4"
    assert formats.rounds(41.3333, 2.0817) == "41.3 ± 2.1"
    assert formats.rounds(41.0) == "41"
    assert formats.rounds(math.inf) == "not reached"


def test_signs_of_differences():
    assert formats.points(0.012) == "+1.2"
    assert formats.points(-0.012) == "\N{MINUS SIGN}1.2"


def test_p_values():
    assert [formats.p_value(p) for p in (0.0009, 0.0123, 1.0, math.nan)] == ["< 0.001", "0.012", "1.000", "n/a"]


def test_no_value_has_one_sign():
    nothing = {formats.percent(math.nan), formats.points(math.nan), formats.human_bytes(math.nan)}
    assert nothing | {formats.rounds(math.nan)} == {formats.NOTHING}
