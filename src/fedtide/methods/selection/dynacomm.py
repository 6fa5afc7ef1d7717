"""DynaComm's selection."""

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
from pydantic import Field

from fedtide.core.array_types import Floats, Ints
from fedtide.core.plugins import PluginSettings
from fedtide.methods.selection.base import TOLERANCE, Candidates, Selection, divergence

Score = Callable[[Floats], Floats]  # pooled rows [..., K] -> values [...], the smaller the better


class DynaComm(Selection):
    """Labels of the group close to the population's: an ensemble of dynamic programs (DynamicFL, Algorithm 2).

    Minimizes the divergence of the pooled labels (eq. 1) over groups that can be afforded. One program visits the clients in
    one random order and keeps the best group of each size; it is a heuristic, since the best group of j clients need not
    contain the best of j - 1. Ties go to the smaller group and to the earlier order.

    Pooled counts are kept beside the groups, so O(orders n^2 L) for n clients and L classes; the released code pools
    again for each candidate.
    """

    class Settings(PluginSettings):
        name: str = "dynacomm"
        orders: int = Field(10, ge=1, description="random client orders; the best result is kept")

    settings: Settings
    needs_classes = True

    def choose(self, candidates: Candidates) -> list[int]:
        c = candidates
        orders = random_orders(c, self.settings.orders)
        return best_group(c.counts, partial(divergence, population=c.population), orders, c.most, c.size)[0]


def random_orders(c: Candidates, number: int) -> Ints:
    """Orders in which the eligible clients are visited, int64 [number, n]."""
    return np.stack([c.generator("order", order).permutation(c.eligible) for order in range(number)])


def best_group(
    values: Floats, score: Score, orders: Ints, most: int, size: int | None = None
) -> tuple[list[int], float]:
    """The best group over some orders of the clients (rows, ascending) and its score; no rows and infinity if all are.

    Algorithm 2, one dynamic program for each order pi; they advance together, a row of ``cell`` each::

        cell[j], j = 0, 1, ..., most: the best group of j clients found so far; cell[0] is empty       (1)
        for each client m in the order pi:                                                             (2)
            for j = most, ..., 1:                                                                      (3)
                cell[j] = cell[j - 1] and m, if that scores less                                       (4)
        the group is the best cell                                                                     (5)
        of all orders the best group                                                                   (6)

    Args:
        values: [C, K], what each client brings; a group has the sum. score: of sums, the smaller the better.
        orders: int64 [S, n], in which clients are visited; others are not considered.
        most: largest size. size: the exact size instead of the best one.
    """
    programs = np.arange(len(orders))
    scores = np.full((len(orders), most + 1), np.inf)  # (1)
    scores[:, 0] = -np.inf  # never replaced, and always there to be extended
    sums = np.zeros((*scores.shape, values.shape[1]))
    member = np.zeros((*scores.shape, len(values)), dtype=np.bool_)
    for visited, m in enumerate(orders.T):  # (2)
        shorter, cell = slice(0, min(visited + 1, most)), slice(1, min(visited + 1, most) + 1)  # (3): j - 1 and j
        extended = sums[:, shorter] + values[m][:, None]
        found = np.where(scores[:, shorter] < np.inf, score(extended), np.inf)
        joined = member[:, shorter].copy()
        joined[programs, :, m] = True
        better = found < scores[:, cell] - TOLERANCE  # (4)
        scores[:, cell][better] = found[better]
        sums[:, cell][better] = extended[better]
        member[:, cell][better] = joined[better]
    smallest, largest = (1, most) if size is None else (size, size)
    best = [_least(row[smallest : largest + 1]) for row in scores]  # (5)
    program, value = _least([least for _, least in best])  # (6)
    if value == np.inf:
        return [], value
    return np.flatnonzero(member[program, smallest + best[program][0]]).tolist(), value


def _least(values: Iterable[float]) -> tuple[int, float]:
    """Place and value of the least; a later one has to be less by more than the tolerance."""
    place, least = 0, np.inf
    for number, value in enumerate(values):
        if value < least - TOLERANCE:
            place, least = number, float(value)
    return place, least
