"""DynaComm's selection."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from pydantic import Field

from fedtide.core.plugins import PluginSettings
from fedtide.selection._divergence import TOLERANCE, divergence
from fedtide.selection.base import Candidates, Floats, Ints, Selection

Score = Callable[[Floats], Floats]
"""Pooled rows [..., K] -> values [...], the smaller the better."""


class DynaComm(Selection):
    """Labels of the group close to the population's: an ensemble of dynamic programmes (DynamicFL, algorithm 2).

    Minimises the divergence of the pooled labels over groups that can be afforded. One programme visits the clients in one
    random order and keeps the best group of each size; it is a heuristic, since the best group of j clients need not contain
    the best of j - 1. Ties go to the smaller group and to the earlier order.

    Pooled counts are kept beside the groups, so O(orders n^2 L) for n clients and L classes; the released code pools
    again for each candidate. All orders advance together.
    """

    class Settings(PluginSettings):
        name: str = "dynacomm"
        orders: int = Field(10, ge=1, description="random orders of the clients; the best result counts")

    settings: Settings
    needs_classes = True

    def choose(self, candidates: Candidates) -> list[int]:
        c = candidates
        orders = np.stack(
            [c.generator("order", number).permutation(c.eligible) for number in range(self.settings.orders)]
        )
        return best_group(c.counts, partial(divergence, population=c.population), orders, c.most, c.size)[0]


def best_group(
    values: Floats, score: Score, orders: Ints, most: int, size: int | None = None
) -> tuple[list[int], float]:
    """The best group over some orders of the clients, and its score.

    Args:
        values: [C, K], what each client brings; a group has the sum.
        score: of sums.
        orders: int64 [S, n], in which clients are visited; others are not considered.
        most: largest size. size: the exact size instead of the best one.

    Returns:
        Rows, ascending, and the score; no rows and infinity if every group is infinitely bad.
    """
    count, visited = orders.shape
    largest = min(most, visited)
    best = np.full((count, largest + 1), np.inf)  # of each order and size
    sums = np.zeros((count, largest + 1, values.shape[1]))
    member = np.zeros((count, largest + 1, len(values)), dtype=np.bool_)
    every = np.arange(count)
    for place in range(visited):
        rows, reach = orders[:, place], min(place + 1, largest)
        exists = np.isfinite(best[:, :reach])
        exists[:, 0] = True
        extended = sums[:, :reach] + values[rows][:, None]
        found = np.where(exists, score(extended), np.inf)
        better = found < best[:, 1 : reach + 1] - TOLERANCE
        joined = member[:, :reach].copy()
        joined[every, :, rows] = True
        best[:, 1 : reach + 1][better] = found[better]
        sums[:, 1 : reach + 1][better] = extended[better]
        member[:, 1 : reach + 1][better] = joined[better]
    sizes = range(1, largest + 1) if size is None else [size]
    chosen, value = np.zeros(len(values), dtype=np.bool_), np.inf
    for order in range(count):
        own, least = 0, np.inf
        for j in sizes:
            if best[order, j] < least - TOLERANCE:
                own, least = j, best[order, j]
        if least < value - TOLERANCE:
            chosen, value = member[order, own], least
    return np.flatnonzero(chosen).tolist(), float(value)
