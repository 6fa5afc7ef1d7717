"""Groups of clients that are available in turns."""

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

    def states(self, round_: int) -> Bools:
        turns = self._turns()
        return np.asarray(self._block() == turns[round_ % len(turns)])

    def stationary(self) -> Floats:
        turns = self._turns()
        share: Floats = np.bincount(turns, minlength=self.settings.blocks)[self._block()] / len(turns)
        return share

    def _block(self) -> Ints:
        """Block of each client, int64 [N]."""
        clients = self.timeline.num_clients
        return np.arange(clients) * self.settings.blocks // clients

    def _turns(self) -> Ints:
        """The block that is available in each round until the turns repeat, int64."""
        s = self.settings
        if s.ratio is not None and s.blocks == 2:
            return np.repeat([0, 1], [s.length, int(s.ratio * s.length)])
        return np.arange(s.length) * s.blocks // s.length
