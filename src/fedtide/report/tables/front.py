"""The Pareto front of points with a cost and a value."""

from __future__ import annotations

from collections.abc import Sequence


def pareto_front(costs: Sequence[float], values: Sequence[float]) -> list[int]:
    """Indices of the non-dominated points (low cost, high value), by ascending cost; equal points are all on the front."""
    kept: list[int] = []
    order = sorted(range(len(costs)), key=lambda place: (costs[place], -values[place]))
    for place in order:
        last = kept[-1] if kept else None
        equal = last is not None and (costs[place], values[place]) == (costs[last], values[last])
        if last is None or values[place] > values[last] or equal:
            kept.append(place)
    return kept
