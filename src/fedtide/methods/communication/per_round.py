"""One exchange per round."""

from fedtide.methods.algorithms.base import Round
from fedtide.methods.communication.base import Communication, Schedule


class PerRound(Communication):
    """Every client averages once, at the end of the round."""

    def schedule(self, r: Round) -> Schedule:
        return Schedule()
