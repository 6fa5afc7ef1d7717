"""The availability patterns of DPFL's released code."""

from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from fedtide.core.array_types import Bools, Floats, Ints
from fedtide.core.errors import SettingsError
from fedtide.world.participation._available import Available, AvailableSettings
from fedtide.world.timeline import Timeline


class DpflReference(Available):
    """Random, Markov or round-robin availability from the random stream of DPFL's code (arXiv:2511.16523).

    ``random``: a fair coin per client and round. ``markov``: on stays on with 0.8, off comes on with 0.2, from a fair coin
    (as in the code's matrix; the diagram in its comment differs). ``round_robin``: in every interval of rounds
    ``step`` consecutive clients, of which ``overlap`` stay for the next one; with the released step 1 and overlap 1 it would
    never advance, so step has to be larger.

    The stream is NumPy's legacy generator, seeded with seed + 2, over all clients and rounds of the run; a round without
    anybody gets one client. For comparison with published runs only: use ``heterogeneous`` or ``markov`` otherwise. DPFL's
    other patterns are scenarios ``incremental_arrival`` and ``incremental_departure``, and participation ``all``.
    """

    class Settings(AvailableSettings):
        name: str = "dpfl_reference"
        pattern: Literal["markov", "random", "round_robin"] = Field("markov", description="reference pattern")
        interval: int = Field(10, ge=1, description="round_robin: rounds of an interval")
        step: int = Field(2, ge=1, description="round_robin: clients of an interval")
        overlap: int = Field(1, ge=0, description="round_robin: clients that stay for the next interval")

        @model_validator(mode="after")
        def _advances(self) -> Self:
            if self.step <= self.overlap:
                raise SettingsError(
                    f"overlap = {self.overlap} should be less than step = {self.step}, so that clients change"
                )
            return self

    settings: Settings

    def bind(self, timeline: Timeline, labels: Ints, seed: int) -> None:
        super().bind(timeline, labels, seed)
        s, shape = self.settings, (timeline.num_clients, timeline.rounds)
        if s.pattern == "round_robin":
            self._on = round_robin(*shape, s.interval, s.step, s.overlap)
        else:
            self._on = (random if s.pattern == "random" else markov)(*shape, seed)

    def states(self, round_: int) -> Bools:
        column: Bools = self._on[:, round_]
        return column

    def stationary(self) -> Floats:
        """See :meth:`Available.stationary`: of this run."""
        share: Floats = self._on.mean(1)
        return share


def random(clients: int, rounds: int, seed: int) -> Bools:
    """Fair coins, client by client."""
    stream = np.random.RandomState((seed + 2) % 2**32)
    on = np.stack([stream.randint(0, 2, rounds) for _ in range(clients)]) == 1
    return _nobody_alone(on, stream)


def markov(clients: int, rounds: int, seed: int) -> Bools:
    """Chains, round by round and client by client."""
    stream = np.random.RandomState((seed + 2) % 2**32)
    on = np.zeros((clients, rounds), dtype=np.bool_)
    on[:, 0] = stream.choice([0, 1], clients)
    for t in range(1, rounds):
        for i in range(clients):
            on[i, t] = stream.choice([1, 0], p=(0.8, 0.2) if on[i, t - 1] else (0.2, 0.8))
    return _nobody_alone(on, stream)


def round_robin(clients: int, rounds: int, interval: int, step: int, overlap: int) -> Bools:
    """``step`` clients per interval, each beginning ``step - overlap`` ids later."""
    on = np.zeros((clients, rounds), dtype=np.bool_)
    for t in range(rounds):
        on[(t // interval * (step - overlap) + np.arange(step)) % clients, t] = True
    return on


def _nobody_alone(on: Bools, stream: np.random.RandomState) -> Bools:
    """A client for every round without one, drawn when the matrix is complete."""
    for t in np.flatnonzero(~on.any(0)):
        on[stream.randint(0, len(on)), t] = True
    return on
