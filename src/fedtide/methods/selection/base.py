"""What a selection plug-in provides: a group of active clients."""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from fedtide.core.array_types import Floats, Ints
from fedtide.core.plugins import Plugin
from fedtide.methods.algorithms.base import Round


@dataclass(frozen=True)
class Candidates:
    """The clients to select from: rows of the round ``r`` that can afford it (``eligible``, ascending, at least one).

    The group has at most ``most`` of them, exactly ``size`` if that is not None.
    """

    r: Round
    eligible: Ints
    most: int
    size: int | None

    @cached_property
    def counts(self) -> Floats:
        """Samples per class of each participant, whole numbers [C, L]."""
        counts: Floats = self.r.label_counts.cpu().numpy().astype(np.float64)
        return counts

    @cached_property
    def population(self) -> Floats:
        """q: share of each class among the samples of all clients present [L]."""
        pooled = self.r.services.population_counts().sum(0)
        shares: Floats = (pooled / pooled.sum()).cpu().numpy()
        return shares

    def generator(self, purpose: str, *keys: int) -> np.random.Generator:
        return self.r.problem.randomness.generator(f"selection.{purpose}", self.r.t, *keys)


class Selection(Plugin):
    """Selects the group of clients that exchange models at the short interval."""

    kind: ClassVar[str] = "selection"

    @abstractmethod
    def choose(self, candidates: Candidates) -> list[int]:
        """Rows of the group, ascending; some of ``candidates.eligible``."""


TOLERANCE = 1e-12  # values closer than this are equal: equal divergences differ in their last bits


def divergence(counts: Floats, population: Floats) -> Floats:
    """KL(p || q) = sum_c p_c ln(p_c / q_c) of pooled label counts [..., L] from the population's shares q [L] (eq. 1).

    Every group has a sample. A class the population lacks makes groups that have it infinitely far; 0 ln 0 = 0.
    """
    p = counts / counts.sum(-1, keepdims=True)  # eq. 1
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(p > 0, p * np.log(p / population), 0.0)
    values: Floats = terms.sum(-1)
    return values
