"""Label histograms in the clear."""

from __future__ import annotations

from fedtide.core.array_types import Ints
from fedtide.core.randomness import Randomness
from fedtide.methods.privacy.histograms import NUMBER, Histograms


class Plain(Histograms):
    """The server sees every client's counts."""

    hides = False

    def total(self, counts: Ints, randomness: Randomness, session: int) -> Ints:
        return counts.sum(0)  # type: ignore[no-any-return]

    def traffic(self, clients: int, classes: int) -> tuple[int, int]:
        """Counts up, frequencies down."""
        return clients * classes * NUMBER, clients * classes * NUMBER
