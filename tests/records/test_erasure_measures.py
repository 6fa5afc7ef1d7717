"""What erased clients have left, over the rounds after a request, by hand."""

import math
from typing import Any

import pytest

from fedtide.records.measures.erasure import COMPARED, MARGIN, last_request, reached, request, resurrection, summary

NAN = math.nan


@pytest.mark.parametrize(
    ("erased", "at"), [([NAN] * 3, None), ([0, 0, 0], None), ([0, 2, 2], 1), ([0, 2, 2, 3], 3), ([], None)]
)
def test_the_last_request_is_where_the_number_of_clients_rises(erased: list[float], at: int | None) -> None:
    assert request(erased) == at


@pytest.mark.parametrize(
    ("step", "change", "rounds"),
    [
        (-MARGIN, [0.0, 0.0], 0),
        (-0.02, [0.0, -0.05], 1),
        (-0.02, [NAN, -MARGIN], 2),
        (-0.02, [-0.02, -0.011], None),
        (NAN, [NAN, NAN], None),
    ],
)
def test_rounds_until_the_others_are_served_as_well(step: float, change: list[float], rounds: int | None) -> None:
    """Rounds before the request do not count, however good they are."""
    assert reached([1.0, 1.0, *change], step, 2) == rounds


def test_a_session_brings_back_the_difference_to_the_end_of_the_one_before() -> None:
    """A request at a boundary comes before the session starts; without a later session nothing comes back."""
    excess, start = [NAN, 0.1, 0.2, 0.3, 0.4], [0.9, NAN, NAN, 0.7, 0.8]
    assert resurrection(excess, 0.05, start, 1) == pytest.approx(0.5)
    assert resurrection([NAN, 0.3], 0.05, [NAN, 0.7], 1) == pytest.approx(0.65)
    assert math.isnan(resurrection([0.1, 0.2], 0.05, [0.5, NAN], 1))


def rows(**columns: list[Any]) -> list[dict[str, str]]:
    count = len(columns["erased"])
    found = {name: [""] * count for name in (f"erased_{name}" for name in COMPARED)} | columns
    return [{name: str(values[t]) for name, values in found.items()} for t in range(count)]


def test_the_summary_has_the_last_values_and_costs() -> None:
    history = rows(
        erased=[0, 1, 1],
        erased_excess=["", 0.4, 0.2],
        erased_excess_start=["", "", 0.5],
        erased_auc=["", 0.6, ""],
        erased_retained_pooled_change=["", -0.2, 0.0],
        erased_retained_pooled_change_step=["", -0.3, ""],
        erase_up=[0.0, 8.0, 8.0],
    )
    found = summary(history)
    assert {name: value for name, value in found.items() if value is not None} == {
        "erase_up": 8,
        "erased_excess": 0.2,
        "erased_auc": 0.6,
        "erased_reached": 2,
        "erased_resurrection": pytest.approx(0.1),
    }
    assert found["erased_gap_left"] is None


def test_without_comparison_there_are_costs_alone_and_before_the_first_request_nothing() -> None:
    assert summary(rows(erased=[0, 1], erase_up=[0.0, 8.0])) == {"erase_up": 8}
    assert summary([{"round": "1"}]) == summary([]) == {}
    columns = {name: [NAN] * 2 for name in COMPARED}
    assert last_request({**columns, "": [0, 0]}) == {"reached": None, "resurrection": None}
