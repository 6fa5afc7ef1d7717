"""Lines that coincide over whole sessions are drawn once, under all their names."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fedtide.report.sections.curves import distinct_lines


def curve(*sessions: float | None) -> pd.DataFrame:
    """Two rounds per session, both with one mean; a session may be missing."""
    rows = [
        {
            "session": number,
            "round": 2 * number + part,
            "x": 2.0 * number + part,
            "mean": mean,
            "low": mean,
            "high": mean,
        }
        for number, mean in enumerate(sessions, 1)
        for part in (-1, 0)
        if mean is not None
    ]
    return pd.DataFrame(rows)


def lines(curves: dict[str, pd.DataFrame], joined: bool) -> dict[str, list[list[int]]]:
    """Rounds of the pieces of each line."""
    return {
        " = ".join(names): [piece["round"].tolist() for piece in pieces]
        for names, pieces in distinct_lines(curves, joined)
    }


def test_methods_that_never_coincide_keep_their_lines() -> None:
    curves = {"a": curve(0.1, 0.2), "b": curve(0.1, 0.3).assign(high=0.9)}
    assert lines(curves, joined=True) == {"a": [[1, 2, 3, 4]], "b": [[1, 2, 3, 4]]}
    assert lines(curves, joined=False) == {"a": [[1, 2], [3, 4]], "b": [[1, 2], [3, 4]]}


def test_methods_that_always_coincide_are_one_line() -> None:
    assert lines({"a": curve(0.1, 0.2), "b": curve(0.1, 0.2)}, joined=True) == {"a = b": [[1, 2, 3, 4]]}


def test_lines_part_where_their_sessions_differ_and_begin_where_they_part() -> None:
    curves = {"a": curve(0.1, 0.2, 0.3, 0.5), "b": curve(0.1, 0.2, 0.4, 0.5), "c": curve(0.1, 0.6, 0.4, 0.5)}
    assert lines(curves, joined=True) == {
        "a": [[4, 5, 6, 7]],
        "c": [[2, 3, 4, 5]],
        "a = b = c": [[1, 2], [7, 8]],
        "a = b": [[2, 3, 4]],
        "b = c": [[5, 6, 7]],
    }
    assert lines(curves, joined=False) == {
        "a": [[5, 6]],
        "c": [[3, 4]],
        "a = b = c": [[1, 2], [7, 8]],
        "a = b": [[3, 4]],
        "b = c": [[5, 6]],
    }


@pytest.mark.parametrize("joined", [True, False])
def test_every_value_of_a_method_is_in_one_of_its_lines(joined: bool) -> None:
    draw = np.random.default_rng(0)
    for _ in range(30):
        curves = {name: curve(*draw.integers(0, 2, 5)) for name in "abc"}
        found = [(names, pd.concat(pieces)) for names, pieces in distinct_lines(curves, joined)]
        assert len({names for names, _ in found}) == len(found)
        for name, rows in curves.items():
            drawn = pd.concat([piece for names, piece in found if name in names]).drop_duplicates().sort_values("round")
            pd.testing.assert_frame_equal(drawn.reset_index(drop=True), rows, check_dtype=False)


def test_other_rounds_are_another_line() -> None:
    assert list(lines({"a": curve(0.1, 0.2), "b": curve(0.1)}, joined=True)) == ["a", "a = b"]
    assert list(lines({"a": curve(0.1), "b": curve(0.1).iloc[:1]}, joined=True)) == ["a", "b"]
