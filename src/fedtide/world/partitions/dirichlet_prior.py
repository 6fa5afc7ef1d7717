"""Parts of equal size with label proportions drawn around those of the data."""

from typing import Literal

import numpy as np
from pydantic import Field

from fedtide.core.array_types import Floats, Ints
from fedtide.core.errors import SettingsError
from fedtide.core.plugins import PluginSettings
from fedtide.core.randomness import generator
from fedtide.world.partitions.base import Partition, class_pools, require_a_sample_each

Scale = Literal["prior", "per_class"]


class DirichletPrior(Partition):
    """Equal parts with Dirichlet proportions around the population's (Guo, Lin and Tang 2021, Algorithms 4 and 5).

    Parts are drawn one after the other: ``theta ~ Dirichlet(alpha p)``, with p the class frequencies of all data, then
    sample by sample a class from theta, where exhausted classes are dropped. The remainder of equal division is not dealt.
    Concentrations sum to alpha, so 10 classes at alpha 0.1 have 0.01 each, which gives 1.5 classes in a part of 238 samples;
    with ``per_class`` every class has concentration alpha, as in the other partitions.
    """

    class Settings(PluginSettings):
        name: str = "dirichlet_prior"
        alpha: float = Field(0.1, gt=0, description="concentration; small values give few classes per client")
        scale: Scale = Field("prior", description="prior: alpha times the frequency of a class; per_class: alpha")

    settings: Settings

    def deal(self, labels: Ints, num_clients: int, num_classes: int, seed: int, group: int = 0) -> list[Ints]:
        require_a_sample_each(num_clients, len(labels))
        chosen, rng = self.settings, generator(seed, "partition.parts", group)
        return draw_parts(labels, num_clients, len(labels) // num_clients, chosen.alpha, chosen.scale, rng)


def draw_parts(labels: Ints, parts: int, size: int, alpha: float, scale: Scale, rng: np.random.Generator) -> list[Ints]:
    """Disjoint parts of the data, each with its own proportions; ``alpha`` and ``scale`` as in :class:`DirichletPrior`.

    All missing samples of a part are drawn at once, and what a class lacks is redrawn from the others, which has the
    distribution of drawing sample by sample.

    Returns:
        One int64 [size] of positions into ``labels`` (int64 [n]) per part.

    Raises:
        SettingsError: there are fewer than ``parts * size`` samples.
    """
    if parts * size > len(labels):
        raise SettingsError(f"{parts} parts of {size} samples exceed the {len(labels)} samples available")
    pools = class_pools(labels, np.unique(labels), rng)
    left = np.array([len(pool) for pool in pools], dtype=np.int64)
    concentration = alpha * (left / len(labels) if scale == "prior" else np.ones(len(pools)))
    used, dealt = np.zeros_like(left), []
    for _ in range(parts):
        live = np.flatnonzero(left)
        theta = np.zeros(len(pools))
        theta[live] = rng.dirichlet(concentration[live])
        taken = _take(theta, left, size, rng)
        cuts = [pool[a : a + n] for pool, a, n in zip(pools, used, taken, strict=True)]
        dealt.append(np.concatenate(cuts).astype(np.int64))
        used, left = used + taken, left - taken
    return dealt


def _take(theta: Floats, left: Ints, size: int, rng: np.random.Generator) -> Ints:
    """Samples of each class in one part: int64, sum ``size``, at most ``left``."""
    taken = np.zeros_like(left)
    while missing := size - int(taken.sum()):
        weights = np.where(taken < left, theta, 0.0)
        if not weights.sum() > 0:  # underflow: draw from the remaining samples
            weights = (left - taken).astype(np.float64)
        drawn = rng.multinomial(missing, weights / weights.sum())
        taken = np.minimum(taken + drawn, left)
    return taken
