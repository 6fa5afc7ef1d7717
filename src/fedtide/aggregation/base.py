"""What an aggregation rule is: how updates become one."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, NamedTuple

from torch import Tensor

from fedtide.core.plugins import Plugin


class Combined(NamedTuple):
    """One update from many.

    Attributes:
        update: [d]. kept: [C], the share of each participant's update that counts, 0 to 1.
    """

    update: Tensor
    kept: Tensor


class Rule(Plugin):
    """Combines the rows behind ``r.mean``; where nothing else is set, their weighted mean.

    A rule sees updates: of models, how far they have moved from where they started.
    """

    kind: ClassVar[str] = "aggregation"

    @abstractmethod
    def combine(self, D: Tensor, p: Tensor) -> Combined:
        """Combine updates.

        Args:
            D: [C, d]; must not be changed. p: [C], weights that sum to one.
        """
