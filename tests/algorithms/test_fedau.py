"""FedAU: intervals between participations."""

from functools import partial
from typing import Any

import torch

from algorithms.absent_worlds import COHORTS, DECAYING, LOCAL, SIZES, UNIFORM, models, start
from support import closest, deal, federation, run_rounds, settings, steady, timeline, trajectory, vectors, watch

au = partial(dict, name="fedau")


def steps(chosen: Any, cohorts: list[list[int]]) -> list[tuple[list[int], torch.Tensor, torch.Tensor]]:
    """Participants, their displacements, and the server's step of every round."""
    fed = federation(settings(algorithm=chosen, local=LOCAL), steady(SIZES, len(cohorts)), vectors(), cohorts=cohorts)
    seen = watch(fed)
    run_rounds(fed)
    return [(r.ids, r.W - r.w, w - r.w) for r, w in seen]


def test_the_first_round_is_a_share_of_fedavgs_step() -> None:
    step = models(UNIFORM, COHORTS[:1], start=start())[0] - start()
    assert closest(models(au(), COHORTS[:1], start=start())[0], start() + 2 / 4 * step) < 1e-15


def test_a_cutoff_of_one_never_weighs() -> None:
    """Every client records an interval of one in every round."""
    for ids, moved, step in steps(au(cutoff=1), COHORTS):
        assert closest(step, moved.sum(0) / 4) < 1e-15
        assert ids


def test_the_weight_is_the_mean_of_unequal_intervals() -> None:
    """Client 1 after intervals of 1, 1 and 2 rounds: four thirds, to double precision."""
    found = [(moved[0], step) for ids, moved, step in steps(au(), [[1], [1], [0], [1], [1]]) if ids == [1]]
    for weight, (moved, step) in zip((1.0, 1.0, 1.0, 4 / 3), found, strict=True):
        assert closest(step, weight * moved / 4) < 1e-15


def test_a_client_first_drawn_late_has_the_cutoffs_recorded_meanwhile() -> None:
    cohorts = [[0]] * 12 + [[3]]
    ids, moved, step = steps(au(cutoff=5), cohorts)[-1]
    assert ids == [3]
    assert closest(step, 5 * moved[0] / 4) < 1e-14


def test_intervals_are_means_by_hand() -> None:
    _, state = trajectory(au(), steady(SIZES, 5), vectors(), local=DECAYING, cohorts=COHORTS)
    assert state.extra["intervals"].tolist() == [4, 4, 3, 5]
    assert state.extra["recorded"].tolist() == [2, 2, 3, 3]
    assert state.extra["waited"].tolist() == [1, 1, 2, 0]


def test_only_clients_that_are_present_wait() -> None:
    """Client 1 joins in the third round: it has not waited before."""
    present = [{0: 0}, {0: 0}, {0: 0, 1: 1}, {0: 0, 1: 1}]
    world = timeline(deal((5, 6)), present)
    _, state = trajectory(au(), world, vectors(), local=LOCAL, cohorts=[[0], [0], [0], [0, 1]])
    assert state.extra["intervals"].tolist() == [4, 2]
    assert state.extra["recorded"].tolist() == [4, 1]
