"""Availability with memory: on/off chains."""

from typing import NamedTuple

import numpy as np
from pydantic import Field

from fedtide.core.array_types import Bools, Floats, Ints
from fedtide.core.errors import SettingsError
from fedtide.world.participation._available import Shared, SharedSettings
from fedtide.world.timeline import Timeline


class Chain(NamedTuple):
    """Probabilities of each client's on/off chain: to stay on, and to come on."""

    stay: Floats
    come: Floats


def from_mean_on(pi: Floats, rounds: float) -> Chain:
    """Chains with stationary shares ``pi`` [N] whose stays last ``rounds`` on average; a SettingsError if there are none."""
    away = np.where(pi < 1, 1 - pi, 1.0)
    least = np.where(pi < 1, np.maximum(1.0, pi / away), 1.0)
    if (short := rounds < least).any():
        client = int(short.argmax())
        raise SettingsError(
            f"participation.mean_on = {rounds:g} should be at least {least[client]:.3g}, pi / (1 - pi) of client {client} "
            f"with availability {pi[client]:.3g}"
        )
    return Chain(np.where(pi < 1, 1 - 1 / rounds, 1.0), np.where(pi < 1, pi / (away * rounds), 1.0))


def from_stability(pi: Floats, stability: float) -> Chain:
    """Chains with stationary shares ``pi`` [N] and second eigenvalue ``stability``; a SettingsError if there are none."""
    with np.errstate(divide="ignore"):
        least = np.maximum(1 - 1 / pi, 1 - 1 / (1 - pi))
    if (low := stability < least).any():
        client = int(low.argmax())
        raise SettingsError(
            f"participation.stability = {stability:g} should be at least {least[client]:.3g} for client {client} with "
            f"availability {pi[client]:.3g}"
        )
    return Chain(stability + (1 - stability) * pi, (1 - stability) * pi)


class Markov(Shared):
    """Each client is on or off by a Markov chain of its own, so that absences last.

    From its stationary share pi_i (``shares``, as in participation ``heterogeneous``) and the mean length L of a stay
    (``mean_on``) a client stays on with probability ``1 - 1 / L`` and comes on with ``pi / ((1 - pi) L)``; or from the second
    eigenvalue nu (``stability``) with ``nu + (1 - nu) pi`` and ``(1 - nu) pi``. The chain starts in round 0 from its
    stationary law and runs on while the client is not present. Stability 0 is participation ``heterogeneous``, apart from
    rounds in which nobody is on.

    CA-Fed's experiments: ``two_groups`` of 0.9 and 0.1, stability 0.9 for correlated clients.
    """

    class Settings(SharedSettings):
        name: str = "markov"
        stability: float = Field(
            0.9, gt=-1, lt=1, description="second eigenvalue of the chain, the correlation of consecutive rounds"
        )
        mean_on: float | None = Field(
            None, ge=1, description="mean rounds of a stay, which then replaces stability; null: by stability"
        )

    settings: Settings

    def bind(self, timeline: Timeline, labels: Ints, seed: int) -> None:
        super().bind(timeline, labels, seed)
        s = self.settings
        self._chain = from_stability(self.pi, s.stability) if s.mean_on is None else from_mean_on(self.pi, s.mean_on)
        self._begin()

    def _begin(self) -> None:
        self._round, self._on = 0, self.uniforms(0) < self.pi

    def states(self, round_: int) -> Bools:
        """See :meth:`Available.states`; by recursion from round 0, of which the last state is kept."""
        if round_ < self._round:
            self._begin()
        while self._round < round_:
            self._round += 1
            self._on = self.uniforms(self._round) < np.where(self._on, self._chain.stay, self._chain.come)
        return self._on
