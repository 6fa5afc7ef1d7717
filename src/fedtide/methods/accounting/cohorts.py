"""Who can take part in each round of a run, and who does: known before training."""

from dataclasses import dataclass

import numpy as np

from fedtide.core.array_types import Bools, Floats, Ints
from fedtide.world.participation.base import Participation
from fedtide.world.timeline import Timeline


@dataclass(frozen=True)
class Cohorts:
    """Clients (N) by rounds (T).

    Attributes:
        present, eligible, drawn: bool [N, T], whether a client is present, holds data too, and takes part.
        expected: m [T], the number of participants that is known without knowing who they are: the expected one of a Poisson
            sample, else that of the cohort. starts: int64 [T], first round of each round's session.
        rate: probability with which each eligible client joins a Poisson sample, None under other rules.
        retrained: after how many rounds the model is replaced by one whose rounds were trained again with their noise, which
            the difference of both is free of; 0 for never.
    """

    present: Bools
    eligible: Bools
    drawn: Bools
    expected: Floats
    starts: Ints
    rate: float | None
    retrained: int = 0


def cohorts(rule: Participation, timeline: Timeline, seed: int, retrained: int = 0) -> Cohorts:
    """The cohorts that a rule, bound to the timeline, draws in a run; ``retrained`` as in :class:`Cohorts`."""
    present = np.zeros((timeline.num_clients, timeline.rounds), dtype=np.bool_)
    eligible, drawn = np.zeros_like(present), np.zeros_like(present)
    holding: dict[int, Ints] = {}
    for t, which in enumerate(timeline.assignment_of_round.tolist()):
        if which not in holding:
            holding[which] = timeline.eligible_of(timeline.at(t)).clients
        here = holding[which]
        present[timeline.at(t).clients, t] = True
        eligible[here, t] = True
        drawn[here[rule.draw(here, t, seed)], t] = True
    sizes = drawn.sum(axis=0) if rule.rate is None else rule.rate * eligible.sum(axis=0)
    starts = timeline.session_starts[timeline.session_of_round]
    return Cohorts(present, eligible, drawn, sizes.astype(np.float64), starts, rule.rate, retrained)
