"""Which sessions are kept."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fedtide.methods.initializers.dynamic import kept


def test_the_golden_cases(golden: Any) -> None:
    for case in golden["unit"]["retention"]:
        keys = case["keys"]

        def distance(a: int, b: int, case: Any = case, keys: Any = keys) -> float:
            return float(case["distance"][keys.index(a)][keys.index(b)])

        assert kept(keys, case["history"], case["retention"] == "diverse", distance) == case["kept"]


@given(st.integers(1, 8), st.integers(0, 9), st.booleans())
def test_the_newest_stays_and_no_more_than_fit(count: int, cap: int, diverse: bool) -> None:
    found = kept(range(count), cap, diverse, lambda a, b: float((a * 7 + b * 3) % 5))
    assert len(found) == min(count, cap)
    assert found == sorted(found)
    if cap:
        assert found[-1] == count - 1
    assert kept(range(count), None, diverse) == list(range(count))


def test_two_populations_that_take_turns_keep_one_representative_each() -> None:
    """Of alternating sessions the newest of either kind stays; the oldest-first rule would do, so end with a repetition."""
    kinds = {2: "A", 3: "B", 4: "A", 5: "A"}
    assert kept(list(kinds), 2, True, lambda a, b: float(kinds[a] != kinds[b])) == [3, 5]
    assert kept(list(kinds), 2, False) == [4, 5]
