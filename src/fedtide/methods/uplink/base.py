"""What a link is: something that happens to an update between the last local step and the server."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from fedtide.core.plugins import Plugin
from fedtide.core.randomness import generator
from fedtide.methods.accounting.cohorts import Cohorts
from fedtide.methods.algorithms.base import RunPreview, Vectors
from fedtide.training.engine.flat import Layout


@dataclass(frozen=True)
class Sending:
    """The participants whose updates pass a link, c of them.

    Attributes:
        t: round, for what changes over rounds. participants: how many there are, also in other processes.
        ids: of the clients. numbers: their last keys in the run's draws: the ids, with ``mode: async`` the jobs' numbers.
        memory: the vectors [c, width] that the link declares, zero for a client never seen; assignments are kept.
        extra: the tensors that the link keeps at the server. extras: those of all links, by their names.
        seed, purpose, keys: of the draws of this link in this round.
    """

    t: int
    participants: int
    ids: list[int]
    numbers: list[int]
    memory: Vectors
    extra: dict[str, Tensor]
    extras: dict[str, dict[str, Tensor]]
    seed: int
    purpose: str
    keys: tuple[int, ...]

    def generator(self, row: int) -> np.random.Generator:
        """The draws of one participant in this round, whoever else takes part."""
        return generator(self.seed, self.purpose, *self.keys, self.numbers[row])

    def shared(self, *keys: int) -> np.random.Generator:
        """Draws that all participants have in common: those of this round, or those of other keys."""
        return generator(self.seed, self.purpose, *(keys or self.keys))


class Link(Plugin):
    """Changes the participants' updates, or what they cost.

    Attributes:
        place: in the order of the links, ascending, whatever their order in the settings; one link has a place. Clipping is at
            10, compression at 20, noise at 30.
        memory: names of vectors kept for every client, zero at the start, lost when a client leaves.
        private: whether it makes the models of the run private, which all else then must not undo.
    """

    kind: ClassVar[str] = "uplink"
    place: ClassVar[int]
    memory: Sequence[str] = ()
    private: ClassVar[bool] = False

    def bind(self, links: Sequence[Link], layout: Layout) -> None:
        """Called once, with all links in order and the parameters that are sent; a SettingsError if they do not fit."""

    def foresee(self, cohorts: Callable[[], Cohorts]) -> None:
        """Called once after :meth:`bind`, which it may refuse as that does.

        ``cohorts()`` is who takes part in which round of the run, which takes time to draw.
        """

    def width(self, name: str, size: int) -> int:
        """Length of a vector of ``memory``; ``size``: d."""
        return size

    def extra(self, size: int) -> dict[str, Tensor]:
        """Initial values of tensors of any shape that the server keeps, also over sessions; ``size``: d."""
        return {}

    def vectors(self, cohorts: Callable[[], Cohorts]) -> int:
        """Vectors [d] of float64 in :meth:`extra`, for the memory that a run is planned with; asked before :meth:`bind`."""
        return 0

    def bits(self, size: int) -> int | None:
        """Bits of an update of ``size`` numbers on the wire after this link; None: as many as before."""
        return None

    @abstractmethod
    def apply(self, D: Tensor, s: Sending) -> dict[str, Tensor]:
        """Change updates in place; returns columns [c, 1] by name. Rows that no link changes stay bitwise as they are.

        Args:
            D: [c, d], where each participant's model has moved to from where its training started.
            s: the participants. Of several processes each has rows of its own, so that no row may depend on others.
        """

    def finish(self, columns: dict[str, Tensor], s: Sending) -> dict[str, Tensor | float]:
        """What to record, columns [C, 1] and numbers by name, and what becomes of the server's tensors; once in a round.

        It is not called in the gradient rounds of an initializer, which leave the server's tensors as they are.

        Args:
            columns: those that ``apply`` returned, of all participants [C, 1]. s: the participants, as in ``apply``.
        """
        return dict(columns)

    def forget(self, gone: Vectors) -> None:
        """Called before vectors of clients [m, width] are lost, a few at a time."""

    def guarantees(self) -> Mapping[str, Sequence[float]]:
        """What each client of the timeline is guaranteed in this run, for ``privacy.csv``: columns [N], or none."""
        return {}

    def libraries(self) -> dict[str, str]:
        """Versions of the packages that the guarantees depend on, by name; recorded with the run."""
        return {}

    def advice(self, run: RunPreview) -> list[str]:
        """One line for each setting that is known to do harm, logged once at the start."""
        return []


Draws = Callable[[], np.random.Generator]
"""The draws of a message, for compressors that have any."""


class Compression(Link):
    """A link that sends ``Q(v)`` in the place of an update v; the server may send its model in that way, too."""

    @abstractmethod
    def exact(self, size: int) -> bool:
        """Whether nothing is lost of updates of ``size`` numbers."""

    @abstractmethod
    def compressed(self, v: Tensor, draws: Draws) -> Tensor:
        """``Q(v)`` of an update [d], a tensor of its own."""

    def remedy(self, size: int) -> str:
        """What to set so that Q is a contraction, ``|v - Q(v)| < |v|`` (on average), of ``size`` numbers; empty if it is one.

        Only then what is lost can be kept and added to the next update: with others it may grow without bound.
        """
        return ""


def memory_name(link: Link, name: str) -> str:
    """Name of a link's client vector among all vectors that clients keep."""
    return f"uplink.{link.settings.name}.{name}"
