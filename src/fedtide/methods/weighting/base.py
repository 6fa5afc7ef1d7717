"""What a weighting plug-in provides."""

from abc import abstractmethod
from typing import ClassVar

from torch import Tensor

from fedtide.core.plugins import Plugin


class Weighting(Plugin):
    """Weights of the participants of a round; they compose with any algorithm that averages with ``r.weights``."""

    kind: ClassVar[str] = "weighting"

    @abstractmethod
    def weights(self, n: Tensor, label_counts: Tensor) -> Tensor:
        """Non-negative weights [C] that sum to one.

        Args:
            n: float64 [C], samples of each participant (all positive).
            label_counts: float64 [C, L], their samples per class.
        """

    def population_weights(self, n: Tensor, label_counts: Tensor) -> Tensor:
        """Weights [K] of all present clients in the mean of their latest models; as of participants by default."""
        return self.weights(n, label_counts)
