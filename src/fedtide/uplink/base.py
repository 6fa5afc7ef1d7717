"""What a link is: something that happens to an update between the last local step and the server."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from fedtide.algorithms.base import Vectors
from fedtide.core.plugins import Plugin
from fedtide.core.randomness import generator


@dataclass(frozen=True)
class Sending:
    """The participants whose updates pass a link, c of them.

    Attributes:
        ids: of the clients. numbers: their last keys in the run's draws: the ids, with ``clock: events`` the jobs' numbers.
        memory: the vectors [c, d] that the link declares, zero for a client never seen; assignments are kept.
        extra: the tensors that the link keeps at the server.
        seed, purpose, keys: of the draws of this link in this round.
    """

    ids: list[int]
    numbers: list[int]
    memory: Vectors
    extra: dict[str, Tensor]
    seed: int
    purpose: str
    keys: tuple[int, ...]

    def generator(self, row: int) -> np.random.Generator:
        """The draws of one participant in this round, whoever else takes part."""
        return generator(self.seed, self.purpose, *self.keys, self.numbers[row])


class Link(Plugin):
    """Changes the participants' updates, or what they cost.

    Attributes:
        place: in the order of the links, ascending, whatever their order in the settings; one link has a place.
        memory: names of vectors [d] kept for every client, zero at the start, lost when a client leaves.
    """

    kind: ClassVar[str] = "uplink"
    place: ClassVar[int]
    memory: Sequence[str] = ()

    def extra(self, size: int) -> dict[str, Tensor]:
        """Initial values of tensors of any shape that the server keeps, also over sessions; ``size``: d."""
        return {}

    def bits(self, size: int) -> int | None:
        """Bits of an update of ``size`` numbers on the wire after this link; None: as many as before."""
        return None

    @abstractmethod
    def apply(self, D: Tensor, s: Sending) -> dict[str, Tensor]:
        """Change updates in place.

        Args:
            D: [c, d], where each participant's model has moved to from where its training started.
            s: the participants. Of several processes each has rows of its own, so that no row may depend on others.

        Returns:
            Columns [c, 1] to record, by name.
        """


def memory_name(link: Link, name: str) -> str:
    """Name of a link's client vector among all vectors that clients keep."""
    return f"uplink.{link.settings.name}.{name}"
