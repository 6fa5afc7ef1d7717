"""Which of several points, each with a cost and a value, no other one beats in both."""

from __future__ import annotations

from collections.abc import Sequence


def front(costs: Sequence[float], values: Sequence[float]) -> list[int]:
    """Places, by ascending cost, of the points to which no other one is at least as good in both and better in one.

    Good are a low cost and a high value. Of equal points all are on the front.
    """
    kept: list[int] = []
    order = sorted(range(len(costs)), key=lambda place: (costs[place], -values[place]))
    for place in order:
        last = kept[-1] if kept else None
        equal = last is not None and (costs[place], values[place]) == (costs[last], values[last])
        if last is None or values[place] > values[last] or equal:
            kept.append(place)
    return kept
