"""Visits in seconds: who is present at every tick, and when that changes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from fedtide.report.picture import draw, presence_in_seconds, summary
from fedtide.world.presence.visits import Changes, Visits
from support import steady


def alone(visits: list[tuple[float, float]], start: float = 0, period: float = 0, slot: float = 1.0) -> Changes:
    """One client."""
    return Changes(Visits.of([visits], [start], [period]), slot)


def seconds(changes: Changes, until: int) -> list[int]:
    """Ticks at which the client is present."""
    return [now for now in range(until) if changes.present(now)[0]]


@examples(max_examples=60, deadline=None)
@given(
    visits=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=4),
    start=st.integers(-20, 20),
    period=st.sampled_from([0, 1, 5, 9, 12]),
)
def test_presence_is_what_the_visits_say_at_every_second(
    visits: list[tuple[int, int]], start: int, period: int
) -> None:
    start = abs(start) if period == 0 else start
    found = Changes(Visits.of([[], visits, [(0, 3)]], [0, start, 0], [0, period, 7]), 1.0)
    expected = []
    for now in range(-1, 40):
        own = (now + start) % period if period else now + start
        expected.append(any(begin <= own < end for begin, end in visits))
        assert found.present(now).tolist()[:2] == [False, expected[-1]]
    only = np.array([False, True, False])
    for now in range(39):
        later = [s for s in range(now + 1, 40) if expected[s + 1] != expected[s]]
        following = found.following(now, only)
        assert following == later[0] if later else following is None or following >= 40
        moved = found.until(now + 1)[1] - found.until(now)[1]
        assert moved == (expected[now + 2] != expected[now + 1])


def test_times_between_two_ticks_count_as_of_the_later_one() -> None:
    found = alone([(0.3, 1.0), (1.1, 1.2), (2.0, 3.9)], slot=0.5)
    assert seconds(found, 12) == [1, 4, 5, 6, 7]
    assert found.until(3)[0] - found.until(2)[0] == 2  # there and gone within a tick
    assert seconds(alone([(0.0, 0.3)], slot=0.1), 9) == [0, 1, 2]  # 0.3 / 0.1 is above 3 in binary


@pytest.mark.slow
def test_the_picture_of_a_world_in_seconds_is_over_seconds(tmp_path: Path) -> None:
    """Client 0 is there half of the time, client 1 from second 60 to 80 of 100."""
    visits = Visits.of([[(0, 50)], [(60, 80)]], [0, 0], [100, 100])
    present, number, span = presence_in_seconds(visits)
    assert number.tolist() == present.sum(axis=0).tolist()
    assert span == 100
    assert present.mean(1).tolist() == [0.5, 0.2]
    world, labels = replace(steady((3, 4), 2), visits=visits), np.arange(7) % 3
    assert summary(world, labels)["clients_present"] == {"min": 0, "max": 1}
    draw(world, labels, tmp_path / "world.png")
    assert (tmp_path / "world.png").stat().st_size > 0
