"""Who takes part in the rounds of a run, without running it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedtide.core import plugins
from fedtide.federation.plan import eligible_clients
from fedtide.participation.base import Participation
from fedtide.settings.run import RunSettings
from fedtide.world.timeline import Ints, Timeline

Bools = NDArray[np.bool_]


def presence_and_cohorts(settings: RunSettings, timeline: Timeline, labels: Ints) -> tuple[Bools, Bools]:
    """Whether each client is present, and takes part, in each round: bool [N, rounds].

    Args:
        settings: of the run. timeline: its world. labels: int64 [n], of the whole training set.
    """
    rule = plugins.create(Participation, settings.participation)
    rule.bind(timeline, labels, settings.seed)
    present = np.zeros((timeline.num_clients, timeline.rounds), dtype=np.bool_)
    drawn, eligible = np.zeros_like(present), dict[int, Ints]()
    for t, which in enumerate(timeline.assignment_of_round.tolist()):
        if which not in eligible:
            eligible[which] = eligible_clients(timeline, t).clients
        here = eligible[which]
        present[timeline.at(t).clients, t] = True
        drawn[here[rule.draw(here, t, settings.seed)], t] = True
    return present, drawn
