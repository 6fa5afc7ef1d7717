"""What an exchange plug-in provides: partial averages inside a round."""

from __future__ import annotations

from abc import abstractmethod

from fedtide.algorithms.round import Round
from fedtide.plugins import Plugin


class Exchange(Plugin):
    """Says who averages after which local step; the average at the end of the round belongs to the algorithm."""

    @abstractmethod
    def partial(self, r: Round) -> list[tuple[int, list[int]]]:
        """Partial averages of a round, by ascending step.

        Returns:
            Pairs (step, rows): after ``step`` local steps (1-based, below the longest client's count) the models of these
            rows of ``r.W`` are replaced by their average, weighted by samples. Each costs its members one exchange.
        """
