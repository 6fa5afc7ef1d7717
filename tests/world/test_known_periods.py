"""What was known at a period does not depend on what came later."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as limits
from hypothesis import strategies as st

from fedtide.core.errors import SettingsError
from fedtide.settings.params import Params
from fedtide.world.dataset import Dataset
from fedtide.world.growing import Period, first_change, known_at, seen_periods
from fedtide.world.timeline import Timeline
from fedtide.worlds.build import build_timeline
from fedtide.worlds.prepared import load_data

NAMES = ["aaron", "bea", "carl", "dora", "zoe"]
ROWS = st.lists(
    st.tuples(st.sampled_from(NAMES), st.integers(0, 39), st.sampled_from([0.0, 0.5, 2.0]), st.sampled_from("uv")),
    min_size=1,
    max_size=25,
)
ALWAYS = pd.DataFrame(
    [
        (name, day + 10 * period, float(day), "uv"[day % 2])
        for period in range(4)
        for name in NAMES[1:4]
        for day in range(6)
    ],
    columns=["who", "when", "x", "label"],
)
"""Rows that let every period have training and test samples."""


def world(folder: Path, frame: pd.DataFrame, **scenario: Any) -> tuple[Timeline, Dataset]:
    frame.to_csv(folder / "rows.csv", index=False)
    table = {"name": "table", "root": str(folder), "file": str(folder / "rows.csv"), "client": "who", "time": "when"}
    raw = {
        "data": {**table, "unit": "days", "split": {"period": 10}, "classes": ["u", "v"], "grows": True},
        "scenario": {"name": "calendar", "period": 10, "rounds_per_period": 2, **scenario},
        "partition": {"name": "natural"},
        "validation": 0.2,
    }
    settings = Params(raw).run()
    data = load_data(settings)
    return build_timeline(settings, data), data


def unnamed(timeline: Timeline) -> Timeline:
    """Without the places of clients in the list of all names, to which later names are added; the names are compared below."""
    return replace(timeline, origin_of_client=np.zeros(0, dtype=np.int64))


@given(further=ROWS, memory=st.integers(0, 2), cut=st.integers(1, 3), seed=st.integers(0, 9))
@limits(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rows_that_are_appended_change_nothing_before(
    tmp_path: Path, further: list[Any], memory: int, cut: int, seed: int
) -> None:
    """Whoever comes later, in whatever order the rows are; only what is evaluated ahead of the last period is new."""
    added = pd.DataFrame(further, columns=ALWAYS.columns)
    whole = pd.concat([ALWAYS, added]).sample(frac=1, random_state=seed)
    part = whole[whole.when < 10 * cut].sample(frac=1, random_state=seed + 1)
    then, now = world(tmp_path, part, memory=memory), world(tmp_path, whole, memory=memory)
    for round_ in range(0, 2 * cut, 2):
        last = round_ == 2 * (cut - 1)
        before, after = (known_at(timeline, round_) for timeline, _ in (then, now))
        assert before.num_clients == after.num_clients == 1 + max(each.clients.max() for each in before.assignments)
        assert last or unnamed(before).digest == unnamed(after).digest
        for t in range(before.rounds):
            assert np.array_equal(before.at(t).clients, after.at(t).clients)
            assert np.array_equal(before.active[t], after.active[t])
            assert all(map(np.array_equal, before.shards_at(t), after.shards_at(t)))
            assert np.array_equal(before.evaluated_at(t).test, after.evaluated_at(t).test)
            assert np.array_equal(before.evaluated_at(t).validation, after.evaluated_at(t).validation)
    seen, later = (seen_periods(*each) for each in (then, now))
    assert seen[:-1] == later[: cut - 1]
    assert (seen[-1].rows, seen[-1].ahead) == (later[cut - 1].rows, "")
    assert first_change(seen, later) == seen[-1]
    names = [[data.origins.clients[origin] for origin in timeline.origin_of_client] for timeline, data in (then, now)]
    assert names[1][: len(names[0])] == names[0]


def test_nothing_of_later_periods_is_known(tmp_path: Path) -> None:
    frame = pd.concat(
        [ALWAYS, pd.DataFrame([("aaron", 25 + n % 5, 0.0, "u") for n in range(9)], columns=ALWAYS.columns)]
    )
    whole, data = world(tmp_path, frame)
    first, last = known_at(whole, 1), known_at(whole, 7)
    assert (first.rounds, first.sessions, first.num_clients) == (2, 1, 3)
    assert first.notes["periods"] == whole.notes["periods"][:1]
    assert first.looks_ahead
    assert first.tests_sessions
    assert (last.rounds, last.num_clients, last.digest) == (8, 4, whole.digest)
    of_later = data.origins.train_time[np.concatenate(first.shards)] >= 10
    assert not of_later.any()


def periods(*hashes: str) -> list[Period]:
    return [Period(f"period {number}", 2 * number, *each.split("/")) for number, each in enumerate(hashes)]


@pytest.mark.parametrize(
    ("now", "name"),
    [
        (periods("a/b", "b/c", "c/d", "d/e", "e/"), "period 3"),
        (periods("a/b", "b/c", "c/d", "x/"), "period 3"),
        (periods("a/b", "b/x", "x/d", "d/"), "period 1"),
        (periods("a/b", "b/c"), "period 2"),
        (periods("a/b", "b/c", "c/d", "d/"), None),
    ],
)
def test_the_last_two_periods_may_change(now: list[Period], name: str | None) -> None:
    found = first_change(periods("a/b", "b/c", "c/d", "d/"), now)
    assert (found and found.name) == name


@pytest.mark.parametrize("now", [periods("a/b", "x/c", "c/d", "d/"), periods("a/b")])
def test_no_earlier_period_may_change(now: list[Period]) -> None:
    with pytest.raises(SettingsError, match="rows of period 1 were changed, added or removed"):
        first_change(periods("a/b", "b/c", "c/d", "d/"), now)
