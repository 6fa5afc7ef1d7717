"""What an exchange plug-in provides: partial averages inside a round, and clients that sit it out."""

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

from fedtide.core.plugins import Plugin
from fedtide.methods.algorithms.base import Algorithm, Round
from fedtide.settings.groups.local import LocalSettings


@dataclass(frozen=True)
class Schedule:
    """When which clients average in one round. Rows are places in the cohort, ascending.

    Attributes:
        averages: (step, rows) by ascending step: after ``step`` local steps (1-based, below the longest client's count) these
            rows' models become their average with the round's weights. Each costs its members one exchange.
        idle: rows that take no local step and exchange nothing.
        idle_count: whether their unchanged models still enter the average at the end of the round.
    """

    averages: list[tuple[int, list[int]]] = field(default_factory=list)
    idle: list[int] = field(default_factory=list)
    idle_count: bool = False


class Communication(Plugin):
    """Decides which clients average after which local step; the average at the end of the round is the algorithm's."""

    kind: ClassVar[str] = "communication"

    @abstractmethod
    def schedule(self, r: Round) -> Schedule:
        """The schedule of a round, made before training."""

    def require(self, algorithm: Algorithm, local: LocalSettings) -> None:
        """Refuse algorithms and local settings that it cannot be combined with."""
