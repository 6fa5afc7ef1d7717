"""Groups of clients that are available in turns."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from fedtide.core.array_types import Bools, Floats, Ints
from fedtide.world.participation._available import Available, AvailableSettings


class Alternating(Available):
    """Blocks of consecutive ids are available in turns, as in FedLaAvg's experiments.

    With two ``blocks`` and a ``ratio``, the first is available for ``length`` rounds and the second for
    ``floor(ratio length)``; without one, every block for ``length / blocks`` rounds of each ``length``. In the experiments the
    blocks hold different labels (partition ``shards`` or ``label_halves``), length is 50 to 200 and ratio 0.1 to 0.5.
    """

    class Settings(AvailableSettings):
        name: str = "alternating"
        length: int = Field(100, ge=1, description="rounds that the first block is available, or those of all turns")
        ratio: float | None = Field(
            0.5, gt=0, le=1, description="turn of the second of two blocks, relative to the first; null: equal turns"
        )
        blocks: int = Field(2, ge=2, description="blocks of consecutive ids; more than two have equal turns")

    settings: Settings

    def block(self) -> Ints:
        """Block of each client, int64 [N]."""
        clients = self.timeline.num_clients
        return np.arange(clients) * self.settings.blocks // clients

    def turn(self, round_: int) -> int:
        """The block that is available."""
        s = self.settings
        if s.ratio is not None and s.blocks == 2:
            return int(round_ % self.period >= s.length)
        return round_ % s.length * s.blocks // s.length

    @property
    def period(self) -> int:
        """Rounds until the turns repeat."""
        s = self.settings
        return s.length + int(s.ratio * s.length) if s.ratio is not None and s.blocks == 2 else s.length

    def states(self, round_: int, seed: int) -> Bools:
        return np.equal(self.block(), self.turn(round_))

    def stationary(self, seed: int) -> Floats:
        turns = np.bincount([self.turn(t) for t in range(self.period)], minlength=self.settings.blocks)
        share: Floats = turns[self.block()] / self.period
        return share
