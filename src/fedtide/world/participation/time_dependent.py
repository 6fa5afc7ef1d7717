"""Availability that changes over time."""

import math
from typing import Literal

import numpy as np
from pydantic import Field

from fedtide.core.array_types import Floats
from fedtide.core.randomness import generator
from fedtide.world.participation._available import Independent, SharedSettings


class TimeDependent(Independent):
    """Independent availability whose probability follows a wave: p_i(t) = pi_i f(t), at most 1.

    With ``x = t / period + phase`` the waves are those of FedAWE's experiments (period 20)::

        stationary    f = 1
        sine          f = gamma sin(2 pi x) + 1 - gamma      gamma 0.1, 0.2, 0.3
        staircase     f = 0.4 in the second half of every period, else 1
        interleaved   sine, but p_i(t) below ``cut`` is 0

    A sine whose period is a day in rounds is diurnal availability; ``phases`` puts clients into time zones. ``shares`` chooses
    the pi_i, as in participation ``heterogeneous``.
    """

    class Settings(SharedSettings):
        name: str = "time_dependent"
        dynamics: Literal["stationary", "sine", "staircase", "interleaved"] = Field(
            "sine", description="wave f(t) that multiplies availabilities"
        )
        gamma: float = Field(0.3, ge=0, le=1, description="amplitude of the sine")
        period: float = Field(20.0, gt=0, description="rounds of a period")
        phase: float = Field(0.0, description="phase of all clients, in periods")
        phases: Literal["common", "uniform", "by_group"] = Field(
            "common", description="further phase of each client: none, uniformly sampled, or by (ID mod phase_groups)"
        )
        phase_groups: int = Field(2, ge=1, description="by_group: groups, at equal distances in a period")
        cut: float = Field(0.1, ge=0, le=1, description="interleaved: smaller probabilities are zero")

    settings: Settings

    def chances(self, round_: int) -> Floats:
        return chances(self.settings, self.pi, round_, self.phase())

    def phase(self) -> Floats:
        """Phase of each client in periods, float64 [N]."""
        clients, groups = np.arange(self.timeline.num_clients), self.settings.phase_groups
        own: Floats = np.zeros(len(clients))
        if self.settings.phases == "uniform":
            own = generator(self.seed, "participation.phases").random(len(clients))
        elif self.settings.phases == "by_group":
            own = clients % groups / groups
        return self.settings.phase + own

    def stationary(self) -> Floats:
        """See :meth:`Available.stationary`: the mean over a period, or over a hundred that are no whole number of rounds."""
        period = self.settings.period
        rounds = int(period) if period.is_integer() else math.ceil(100 * period)
        mean: Floats = np.mean([self.chances(t) for t in range(rounds)], axis=0)
        return mean


def chances(settings: TimeDependent.Settings, pi: Floats, round_: int, phase: Floats) -> Floats:
    """p_i(t) [N] of clients with availabilities ``pi`` and phases [N]."""
    wave = 1 - settings.gamma + settings.gamma * np.sin(2 * np.pi * (round_ / settings.period + phase))
    f = {
        "stationary": np.ones_like(pi),
        "sine": wave,
        "staircase": np.where(np.floor(2 * round_ / settings.period + 2 * phase) % 2 == 1, 0.4, 1.0),
        "interleaved": wave,
    }[settings.dynamics]
    p: Floats = np.clip(pi * f, 0.0, 1.0)
    return np.where(p < settings.cut, 0.0, p) if settings.dynamics == "interleaved" else p
