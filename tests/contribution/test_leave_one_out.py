"""Leave-one-out values: what they equal, and that the runs they come from may share their first rounds."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedtide.federation.federation import Federation
from fedtide.federation.types import Parts
from fedtide.studies.leave_one_out import leave_one_out, runs_without, whole_run
from fedtide.world.dataset import Dataset, Origins
from fedtide.world.timeline import Timeline
from support import dataset, deal, federation, run_rounds, settings, steady, timeline, vectors

pytestmark = pytest.mark.usefixtures("drop_in")

SIZES = (12, 8, 20, 10)
COHORTS = [[1, 2], [1, 2], [0, 1], [0, 2], [1, 2], [0, 2]]
"""Client 3 never takes part, client 0 from the third round on."""


def owned(data: Dataset) -> Dataset:
    """The data, of which each client owns its shard, to train and to be tested on."""
    owners = np.repeat(np.arange(len(SIZES)), SIZES)
    return replace(data, origins=Origins(owners, owners, clients=tuple("abcd")))


def halves() -> Timeline:
    """Two sessions of three rounds; client 0 arrives with round 2, client 3 with the second session."""
    present = [{client: client for client, first in enumerate((1, 0, 0, 3)) if t >= first} for t in range(6)]
    return timeline(deal(SIZES), present, session_of_round=[0, 0, 0, 1, 1, 1])


def prepared(data: Dataset | None = None, **values: Any) -> Parts:
    world = replace(halves(), origin_of_client=np.arange(len(SIZES)))
    return federation(settings(**values), world, data or owned(vectors(50)), cohorts=COHORTS).parts


@pytest.mark.slow
@pytest.mark.parametrize(
    "values",
    [
        {"algorithm": "fedavg", "initializer": "average"},
        {"algorithm": "scaffold"},
        {"algorithm": {"name": "fedopt", "optimizer": "adam"}},
        {"algorithm": "fedavg", "initializer": "dynamic"},
        {"algorithm": "fedavg", "detector": {"name": "after", "losses": 2, "response": "start_session"}},
        {"algorithm": "fedavg", "aggregation": "median", "uplink": [{"name": "top_k"}]},
    ],
    ids=str,
)
def test_a_run_from_the_first_part_is_the_run_from_the_start(values: dict[str, Any]) -> None:
    parts = prepared(**values)
    whole, begins = whole_run(parts, range(4))
    assert max(begins.values()) > 0
    shared = dict(runs_without(parts, begins, whole))
    alone = dict(runs_without(parts, dict.fromkeys(range(4), 0), whole))
    for client, model in shared.items():
        other = alone[client]
        assert model is not None
        assert other is not None
        assert torch.equal(model[0], other[0])
    assert torch.equal(whole[0], run_rounds(Federation(prepared(**values)))[0].w)
    parts.workers.close()


def test_a_client_that_never_takes_part_is_worth_nothing() -> None:
    parts = prepared()
    found = {each.client: each for each in leave_one_out(parts, range(4))}
    assert found[3].values == (0.0,) * 6
    taken = [(found[client].first_round, found[client].rounds) for client in range(4)]
    assert taken == [(3, 4), (1, 6), (1, 6), (0, 0)]
    assert found[0].name == "a"
    assert all(found[client].values[1] != 0 for client in range(3))


@pytest.mark.parametrize("task", ["classification", "regression", "multilabel"])
def test_losses_on_own_samples_and_on_those_of_others_add_up(task: Any) -> None:
    data, values = vectors(50), dict[str, Any]()
    if task != "classification":
        labels = data.train_inputs[:, :2] if task == "regression" else (data.train_inputs[:, :2] > 0).double()
        data = replace(data, train_labels=labels, test_labels=labels, num_classes=1, task=task)
        objective = {"regression": "mean_squared_error", "multilabel": "binary_cross_entropy"}[task]
        values = {"partition": "iid", "objective": objective}
    for each in leave_one_out(prepared(data=owned(data), **values), [0, 2]):
        own, others = each.values[3], each.values[5]
        size = SIZES[each.client]
        assert each.values[1] == pytest.approx((size * own + (50 - size) * others) / 50, rel=1e-9)
        assert all(map(math.isfinite, each.values))


def test_without_owners_clients_count_by_their_labels() -> None:
    """Each client holds one class alone: its own value is that on this class."""
    data = vectors(50)
    order = torch.argsort(data.train_labels, stable=True)
    data = dataset(data.train_inputs[order], data.train_labels[order], 3)
    counts = torch.bincount(data.train_labels, minlength=3).tolist()
    parts = federation(settings(), steady(counts, 4), data, cohorts=[[0, 1, 2]] * 4).parts
    for each in leave_one_out(parts, [0, 1, 2]):
        rest = sum(counts) - counts[each.client]
        for whole, own, others in (each.values[::2], each.values[1::2]):
            assert whole == pytest.approx((counts[each.client] * own + rest * others) / sum(counts), rel=1e-9)


def test_a_lonely_client_is_worth_the_whole_training() -> None:
    data = vectors(20)
    parts = federation(settings(), steady([20], 3), data).parts
    (only,) = leave_one_out(parts, [0])
    model, _ = whole_run(parts, [0])
    before, after = (parts.evaluator.scores((w, parts.b0)).row() for w in (parts.w0, model[0]))
    assert only.values[:2] == (after["accuracy"] - before["accuracy"], before["loss"] - after["loss"])  # type: ignore[operator]
    assert all(map(math.isnan, only.values[4:]))


def test_a_client_without_which_training_diverges_has_no_value() -> None:
    """Client 1 trains on a single sample with a large loss, which the mean over samples hides."""
    data = vectors(40)
    data.train_inputs[39] *= 1e4
    values = {"divergence_threshold": 300.0, "local": {"steps": 1, "batch_size": 1, "lr": 1e-6}}
    parts = federation(settings(**values), steady([39, 1], 2), data).parts
    found = {each.client: each.values[0] for each in leave_one_out(parts, [0, 1])}
    assert math.isnan(found[0])
    assert not math.isnan(found[1])
