import math

import pytest

from fedtide.report import formats

NAN, INF, NEVER = math.nan, math.inf, "not reached"


@pytest.mark.parametrize(
    ("write", "values", "text"),
    [
        (formats.human_bytes, (0,), "0 B"),
        (formats.human_bytes, (1000,), "1 kB"),
        (formats.human_bytes, (80_808_000,), "80.8 MB"),
        (formats.human_bytes, (999_700_000,), "1000 MB"),
        (formats.human_bytes, (3e19,), "30000 PB"),
        (formats.human_bytes, (INF,), NEVER),
        (formats.human_bytes, (NAN,), formats.NOTHING),
        (formats.percent, (0.8343, 0.0119), "83.4 ± 1.2"),
        (formats.percent, (NAN,), formats.NOTHING),
        (formats.rounds, (41.3333, 2.0817), "41.3 ± 2.1"),
        (formats.rounds, (41.0,), "41"),
        (formats.PERCENT.difference, (0.012,), "+1.2"),
        (formats.PERCENT.difference, (-0.012,), "\N{MINUS SIGN}1.2"),
        (formats.p_value, (0.0009,), "< 0.001"),
        (formats.p_value, (0.0123,), "0.012"),
        (formats.p_value, (NAN,), "n/a"),
        (formats.seconds, (0.0271,), "27.1 ms"),
        (formats.seconds, (17037.7,), "17,038 s"),
        (formats.joules, (1.2e-5,), "12 µJ"),
        (formats.seconds, (0.0,), "0 s"),
    ],
)
def test_numbers_for_people(write, values, text):
    assert write(*values) == text
