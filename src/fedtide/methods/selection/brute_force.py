"""The best selection, by enumeration."""

import itertools
import math
from collections.abc import Iterable

import numpy as np
from pydantic import Field

from fedtide.core.array_types import Floats
from fedtide.core.errors import SettingsError
from fedtide.core.plugins import PluginSettings
from fedtide.methods.selection.base import TOLERANCE, Candidates, Selection, divergence

_CHUNK = 1 << 13  # groups scored at a time


class BruteForce(Selection):
    """The group whose labels are closest to the population's, among all groups that can be afforded.

    Ties go to the smaller group, and among groups of one size to the first in lexical order.
    """

    class Settings(PluginSettings):
        name: str = "brute_force"
        limit: int = Field(5_000_000, ge=1, description="maximum number of groups in a round")

    settings: Settings
    needs_classes = True

    def choose(self, candidates: Candidates) -> list[int]:
        """The optimum; a SettingsError if there are too many groups."""
        c = candidates
        sizes = range(1, c.most + 1) if c.size is None else [c.size]
        groups = sum(math.comb(len(c.eligible), size) for size in sizes)
        if groups > self.settings.limit:
            raise SettingsError(
                f"communication.selection.limit = {self.settings.limit}: {groups} groups of {len(c.eligible)} "
                "clients exceed it; raise it, or use another selection"
            )
        chosen, _ = optimum(c.counts[c.eligible], c.population, sizes)
        return c.eligible[chosen].tolist()  # type: ignore[no-any-return]


def optimum(counts: Floats, population: Floats, sizes: Iterable[int]) -> tuple[list[int], float]:
    """The closest group and its divergence, over all groups of ``sizes`` (ascending) of the rows of ``counts`` [n, L]."""
    chosen, least = [0], np.inf
    for size in sizes:
        groups = itertools.combinations(range(len(counts)), size)
        while block := list(itertools.islice(groups, _CHUNK)):
            rows = np.array(block)
            values = divergence(counts[rows].sum(1), population)
            first = int(np.flatnonzero(values <= values.min() + TOLERANCE)[0])
            if values[first] < least - TOLERANCE:
                chosen, least = rows[first].tolist(), float(values[first])
    return chosen, least
