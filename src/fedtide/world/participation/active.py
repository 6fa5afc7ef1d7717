"""Clients with samples dated in the round participate."""

import numpy as np

from fedtide.core.array_types import Bools, Floats, Ints
from fedtide.core.errors import SettingsError
from fedtide.world.participation._available import Available, AvailableSettings
from fedtide.world.timeline import Timeline


class Active(Available):
    """Available are the clients whose training samples were made in the time of the round.

    For scenario ``calendar``, in which a round stands for an equal part of its period. A client may train on all it holds of
    the period, not only on the samples of the round.
    """

    class Settings(AvailableSettings):
        name: str = "active"

    settings: Settings
    private = False  # the dates of a client's samples decide

    def bind(self, timeline: Timeline, labels: Ints, seed: int) -> None:
        if not timeline.active:
            scenario = timeline.notes.get("scenario", "of this run")
            raise SettingsError(
                f"participation active requires scenario calendar; scenario {scenario} has no sample times"
            )
        super().bind(timeline, labels, seed)

    def states(self, round_: int) -> Bools:
        return np.isin(np.arange(self.timeline.num_clients), self.timeline.active[round_])

    def stationary(self) -> Floats:
        """See :meth:`Available.stationary`: share of the rounds in which the client is present."""
        present = _counts([self.timeline.at(t).clients for t in range(self.timeline.rounds)], self.timeline.num_clients)
        return _counts(self.timeline.active, self.timeline.num_clients) / np.maximum(present, 1)


def _counts(ids: list[Ints], clients: int) -> Floats:
    """How often each client occurs, float64 [N]."""
    return np.bincount(np.concatenate(ids), minlength=clients).astype(np.float64)
