"""Selection by a genetic algorithm."""

import numpy as np
from pydantic import Field

from fedtide.core.array_types import Bools, Floats
from fedtide.core.plugins import PluginSettings
from fedtide.methods.selection.base import TOLERANCE, Candidates, Selection, divergence

_PENALTY = 1e5  # cost of every client above the largest size, or away from the exact one


class Genetic(Selection):
    """Labels close to the population's by a genetic algorithm, with which DynamicFL compares DynaComm.

    A chromosome has a bit per client; tournaments of three with replacement, two-point crossover of each individual with the
    one half a population away, a flip of each bit with ``mutation``. There is no elitism, but the best individual ever seen is
    returned. The paper has mutation 0.01, the released code 0.001; it runs ten times and keeps the best.
    """

    class Settings(PluginSettings):
        name: str = "genetic"
        population: int = Field(50, ge=2, multiple_of=2, description="individuals")
        generations: int = Field(200, ge=1, description="generations")
        mutation: float = Field(0.01, ge=0, le=1, description="probability that a bit flips")
        repeats: int = Field(10, ge=1, description="searches; the best one is kept")

    settings: Settings
    needs_classes = True

    def choose(self, candidates: Candidates) -> list[int]:
        c, least = candidates, _PENALTY  # a group of a wrong size is none
        chosen = c.eligible[: c.size or 1]
        for repeat in range(self.settings.repeats):
            bits, value = self._search(c, c.generator("genetic", repeat))
            if value < least - TOLERANCE:
                chosen, least = c.eligible[bits], value
        return chosen.tolist()  # type: ignore[no-any-return]

    def _search(self, c: Candidates, rng: np.random.Generator) -> tuple[Bools, float]:
        s, genes, counts = self.settings, len(c.eligible), c.counts[c.eligible]
        people = rng.random((s.population, genes)) < 0.5
        best, least = people[0], np.inf
        for _ in range(s.generations):
            costs = _costs(people, counts, c)
            first = int(costs.argmin())
            if costs[first] < least - TOLERANCE:
                best, least = people[first].copy(), float(costs[first])
            rivals = rng.integers(s.population, size=(s.population, 3))
            people = people[rivals[np.arange(s.population), costs[rivals].argmin(1)]]
            people = _crossed(people, rng) ^ (rng.random(people.shape) < s.mutation)
        return best, least


def _costs(people: Bools, counts: Floats, c: Candidates) -> Floats:
    """Divergence of each individual [n bits], the empty one and those of a wrong size far behind all others."""
    sizes = people.sum(1)
    excess = np.maximum(sizes - c.most, 0) if c.size is None else np.abs(sizes - c.size)
    pooled = people.astype(np.float64) @ counts
    pooled[sizes == 0] = 1.0
    far = np.where(sizes == 0, _PENALTY**2, 0.0)
    costs: Floats = divergence(pooled, c.population) + _PENALTY * excess + far
    return costs


def _crossed(people: Bools, rng: np.random.Generator) -> Bools:
    """Exchange a random run of bits between individuals i and i + half."""
    half, genes = len(people) // 2, people.shape[1]
    ends = np.sort(rng.integers(genes + 1, size=(half, 2)), axis=1)
    places = np.arange(genes)
    inside = (ends[:, :1] <= places) & (places < ends[:, 1:])
    first, second = people[:half], people[half:]
    return np.concatenate([np.where(inside, second, first), np.where(inside, first, second)])
