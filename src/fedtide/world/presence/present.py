"""Evaluation on the samples of the clients that are present."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedtide.core.errors import SettingsError
from fedtide.world.dataset import Samples
from fedtide.world.timeline import HeldOut, Timeline


def evaluated_on_present(timeline: Timeline, train: Samples, test: Samples) -> Timeline:
    """The timeline with every round evaluated on those of its held-out samples that belong to clients present.

    Raises:
        SettingsError: the scenario does not keep the clients of the data, or those present in some round have no test samples.
    """
    if not len(timeline.origin_of_client):
        raise SettingsError(
            "partition.test_on = 'present': the scenario does not keep the clients of the data; use 'all'"
        )
    everything = HeldOut(np.arange(len(test), dtype=np.int64), timeline.validation)
    before = timeline.held_out_of_round if len(timeline.held_out_of_round) else np.full(timeline.rounds, -1)
    pairs, of_round = np.unique(np.stack([before, timeline.assignment_of_round]), axis=1, return_inverse=True)
    kept, first = list(timeline.held_out), len(timeline.held_out)
    for place, assignment in pairs.T:
        clients = timeline.origin_of_client[timeline.assignments[assignment].clients]
        whole = everything if place < 0 else timeline.held_out[place]
        parts = [
            positions[np.isin(known.client[positions], clients)]
            for known, positions in ((test, whole.test), (train, whole.validation))
            if known.client is not None
        ]
        kept.append(HeldOut(*parts))
    for number, index in enumerate(of_round.ravel()):
        if not len(kept[first + index].test):
            raise SettingsError(
                f"partition.test_on = 'present': no client present in round {number + 1} has test samples; use 'all'"
            )
    following = timeline.next_of_round if len(timeline.next_of_round) else np.full(timeline.rounds, -1, dtype=np.int64)
    return replace(timeline, held_out=kept, held_out_of_round=first + of_round.ravel(), next_of_round=following)
