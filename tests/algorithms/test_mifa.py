"""MIFA: the beginning, waiting, and incremental aggregated gradients."""

import pytest
import torch
from torch import Tensor

from algorithms.absent_worlds import COHORTS, DECAYING, EVERYBODY, FULL_BATCH, SIZES, UNIFORM, models, start
from support import closest, deal, federation, largest_gap, run_rounds, settings, steady, trajectory, vectors, watch


def test_a_first_round_counts_the_absent_as_zero_or_not_at_all() -> None:
    fed = federation(settings(algorithm=UNIFORM, local=DECAYING), steady(SIZES, 5), vectors(), cohorts=COHORTS)
    w0 = fed.parts.w0.clone()
    seen = watch(fed)
    run_rounds(fed)
    step = seen[0][1] - w0
    assert closest(models("mifa")[0], w0 + 2 / 4 * step) < 1e-15
    assert closest(models({"name": "mifa", "begin": "seen"})[0], w0 + step) < 1e-15


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_seen_is_zero_over_the_share_of_those_who_have_answered(weighting: str) -> None:
    """Cohorts {0, 2}, {1, 2, 3}: from the second round on everybody has answered."""
    q = torch.tensor(SIZES if weighting == "samples" else (1, 1, 1, 1), dtype=torch.float64)
    share = float((q[0] + q[2]) / q.sum())
    zero, seen = (
        models({"name": "mifa", "weighting": weighting, "begin": begin}, COHORTS[:1], start=start())[0]
        for begin in ("zero", "seen")
    )
    assert closest((zero - start()) / share, seen - start()) < 1e-14


def test_waiting_leaves_the_model_until_the_last_client_has_answered() -> None:
    """Then, with one full-batch step, w is FedAvg's model after one round of everybody from w_0."""
    cohorts = [[0, 2], [2, 3], [0], [1, 2], [3]]
    waiting = {"name": "mifa", "begin": "wait"}
    ours = models(waiting, cohorts, start=start(), local=FULL_BATCH)
    for w in ours[:3]:
        assert torch.equal(w, start())
    fedavg = models(UNIFORM, EVERYBODY[:1], start=start(), local=FULL_BATCH)[0]
    assert closest(ours[3], fedavg) < 1e-15
    assert closest(ours[3], ours[4]) > 1e-4


def test_nobody_waits_for_a_client_without_data() -> None:
    cohorts = [[0, 2], [1], [2]]
    local = {"epochs": 1, "batch_size": 3, "lr": 0.1}
    waiting = {"name": "mifa", "begin": "wait"}
    ours, _ = trajectory(waiting, steady((5, 2, 7, 0), 3), vectors(), cohorts=cohorts, start=start(), local=local)
    assert torch.equal(ours[0], start())
    assert closest(ours[1], start()) > 1e-3


def gradient(w: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
    """Of the mean cross-entropy of softmax regression."""
    weight, bias = w[:15].view(3, 5), w[15:]
    wrong = torch.softmax(inputs @ weight.T + bias, 1) - torch.nn.functional.one_hot(labels, 3)
    return torch.cat([(wrong.T @ inputs / len(labels)).flatten(), wrong.mean(0)])


def test_one_full_batch_step_is_incremental_aggregated_gradient() -> None:
    data, shards, w = vectors(), deal(SIZES), start()
    table, expected = torch.zeros(4, 18, dtype=torch.float64), []
    for cohort in COHORTS:
        for i in cohort:
            table[i] = gradient(w, data.train_inputs[shards[i]], data.train_labels[shards[i]])
        w = w - 0.1 * table.mean(0)
        expected.append(w)
    assert largest_gap(models("mifa", start=start(), local=FULL_BATCH), expected) < 1e-14
