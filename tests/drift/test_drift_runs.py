"""Runs under drift: what is trained on, and under which concept clients are evaluated."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedtide.core import plugins
from fedtide.settings.run import RunSettings
from fedtide.world.building.build import build_timeline
from fedtide.world.building.drifting import with_drift
from fedtide.world.concepts import under
from fedtide.world.dataset import Dataset, Origins
from fedtide.world.drift.base import Drift
from fedtide.world.timeline import Timeline
from support import assert_same, dataset, deal, federation, images, run_rounds, settings, steady, timeline, vectors

SIZES = (12, 8, 20)
ROTATED = [1, 2, 0]


def drifting(data: Dataset, rounds: int = 4, sizes: tuple[int, ...] = SIZES, **drift: Any) -> Timeline:
    """Everybody present, under a drift."""
    chosen = settings(drift=drift).drift
    return with_drift(steady(sizes, rounds, data.num_classes), plugins.create(Drift, chosen), data, seed=0)


def run_of(**values: Any) -> RunSettings:
    return settings(local={"epochs": 2, "batch_size": 4, "lr": 0.2}, **values)


def test_a_drift_to_the_same_concept_changes_nothing() -> None:
    data = vectors(40)
    same = drifting(data, name="sudden", start=2, concepts=[{"labels": [0, 1, 2]}])
    states, rows = zip(
        *(run_rounds(federation(run_of(algorithm="scaffold"), world, data)) for world in (steady(SIZES, 4), same)),
        strict=True,
    )
    assert_same(*states)
    for one, other in zip(*rows, strict=True):
        assert other.row["test_accuracy"] == pytest.approx(one.row["test_accuracy"], abs=1e-15)
        assert other.row["train_loss"] == one.row["train_loss"]


def test_batches_are_the_same_samples_with_and_without_drift() -> None:
    data, plans = vectors(40), list[Any]()
    for world in (steady(SIZES, 4), drifting(data, name="gradual", start=1, length=3)):
        fed = federation(run_of(), world, data)
        begin = fed.parts.executor.begin

        def note(cohort: Any, begin: Any = begin) -> Any:
            plans.append((cohort.plan.samples % 40, cohort.plan.keys))
            return begin(cohort)

        fed.parts.executor.begin = note  # type: ignore[method-assign]
        run_rounds(fed)
    for (indices, keys), (seen, seen_keys) in zip(plans[:4], plans[4:], strict=True):
        assert torch.equal(indices, seen)
        assert torch.equal(keys, seen_keys)


def test_labels_that_all_see_renamed_rename_the_rows_of_the_model() -> None:
    data = vectors(40)
    renamed = drifting(data, name="sudden", initial={"labels": ROTATED}, concepts=[{"labels": [0, 1, 2]}], share=0.01)
    plain = federation(run_of(), steady(SIZES, 4), data)
    w0 = plain.parts.w0.view(-1)
    weight, bias = w0[:15].view(3, 5), w0[15:]
    order = torch.tensor(ROTATED).argsort()  # row of seen label l is that of the y with labels[y] = l
    start = torch.cat([weight[order].flatten(), bias[order]])
    (whole, _), (seen, records) = run_rounds(plain), run_rounds(federation(run_of(), renamed, data, start=start))
    expected = torch.cat([whole.w[:15].view(3, 5)[order].flatten(), whole.w[15:][order]])
    assert float((seen.w - expected).abs().max()) < 1e-12
    assert records[-1].row["test_accuracy"] > 0.5  # type: ignore[operator]


def test_accuracy_is_that_of_each_client_under_its_own_concept() -> None:
    """A model that is always right about the labels as they are: right as often as the labels are not renamed."""
    labels = torch.tensor([0] * 10 + [1] * 20 + [2] * 10)
    inputs = torch.eye(3, dtype=torch.float64)[labels]
    data = Dataset("tiny", "vector", inputs, labels, inputs, labels, 3, digest="tiny")
    shards = [np.arange(0, 40, 4), np.arange(1, 40, 4), np.arange(2, 40, 2)]
    world = steady((10, 10, 20), 3)
    world = replace(world, shards=[shard[shard < 40] for shard in shards])
    drift = settings(drift={"name": "sudden", "start": 1, "clients": [[2]], "concepts": [{"swap": [[0, 2]]}]}).drift
    world = with_drift(world, plugins.create(Drift, drift), data, seed=0)
    right = torch.cat([10 * torch.eye(3, dtype=torch.float64).flatten(), torch.zeros(3, dtype=torch.float64)])
    chosen = run_of(algorithm="frozen", evaluation={"clients_every": 1})
    chosen = chosen.model_copy(update={"local": chosen.local.model_copy(update={"lr": 1e-12})})
    _, (before, after, _) = run_rounds(federation(chosen, world, data, start=right))
    sizes = [len(shard) for shard in world.shards_at(0)]
    assert before.row["test_accuracy"] == 1
    assert after.row["test_accuracy"] == pytest.approx((sizes[0] + sizes[1] + 0.5 * sizes[2]) / sum(sizes))
    own = world.shards_at(0)[2]
    mine = float((labels[own] == 1).double().mean())  # only label 1 is still right
    assert after.row["client_accuracy_mean"] == pytest.approx((1 + 1 + mine) / 3)
    assert after.row["client_accuracy_worst_decile"] == pytest.approx(mine)


def test_inputs_are_turned_once_and_labels_are_not_stored_again() -> None:
    data = images(12)
    swapped, turned = {"swap": [[0, 1]]}, {"turns": 1}
    concepts = [swapped, turned, swapped | turned]
    seen = under(data, drifting(data, name="sudden", sizes=(6, 6), start=1, concepts=concepts).concepts)
    assert len(seen.train_inputs) == 24
    assert len(seen.train_labels) == 48
    pictures, labels = seen.read("train", torch.tensor([3, 15, 27, 39]))
    before, after = data.train_inputs[3], torch.rot90(data.train_inputs[3], 1, (-2, -1))
    assert torch.equal(pictures, torch.stack([before, before, after, after]))
    y = int(data.train_labels[3])
    other = {0: 1, 1: 0, 2: 2}[y]
    assert labels.tolist() == [y, other, y, other]


def test_samples_with_owners_are_tested_under_their_concept() -> None:
    data = vectors(12)
    owner = np.repeat([0, 1, 2], 4)
    data = replace(data, origins=Origins(owner, owner, clients=("a", "b", "c")))
    chosen = settings(
        scenario={"name": "static", "num_clients": None, "rounds": 3},
        partition="natural",
        drift={"name": "sudden", "start": 1, "clients": [["b"]], "concepts": [{"swap": [[0, 1]]}]},
    )
    world = build_timeline(chosen, data)
    assert world.mixture_at(2) is None
    tested = world.evaluated_at(2)
    assert tested is not None
    assert tested.test.tolist() == [*range(4), *range(8, 12), *range(16, 20)]
    assert world.evaluated_at(0).test.tolist() == list(range(12))  # type: ignore[union-attr]
    assert world.changed_at(1).tolist() == [1]
    assert not len(world.changed_at(2))


def test_the_next_period_is_tested_as_clients_see_it_when_it_begins() -> None:
    """Two periods of two rounds; everybody changes with the second."""
    owner, period = np.tile([0, 1, 2], 8), np.repeat([0, 1], 12)
    data = replace(vectors(24), origins=Origins(owner, owner, period, period, ("a", "b", "c"), "step"))
    chosen = settings(
        scenario={"name": "calendar", "period": 1, "rounds_per_period": 2},
        partition="natural",
        drift={"name": "sudden", "start": {"session": 2}, "concepts": [{"swap": [[0, 1]]}]},
    )
    world = build_timeline(chosen, data)
    now, ahead = world.evaluated_at(1), world.evaluated_ahead_at(1)
    assert now is not None
    assert ahead is not None
    assert now.test.tolist() == list(range(12))
    assert ahead.test.tolist() == list(range(24 + 12, 24 + 24))


def test_a_world_under_drift_is_stored_whole(tmp_path: Path) -> None:
    world = drifting(vectors(40), name="gradual", start=1, length=2, concepts=[{"matrix": np.eye(5).tolist()}])
    world.save(tmp_path / "world.npz", "mine")
    again = Timeline.load(tmp_path / "world.npz", "mine")
    assert again.concepts == world.concepts
    assert again.digest == world.digest != steady(SIZES, 4).digest


ONE_MODEL = [
    {"name": "ifca", "clusters": 1},
    {"name": "feddrift", "delta": 1e9},
    {"name": "adaptive_fedavg", "every": 99},
]


@pytest.mark.parametrize("algorithm", ONE_MODEL, ids=lambda chosen: str(chosen["name"]))
def test_with_one_model_for_all_it_is_fedavg(algorithm: Any) -> None:
    data = vectors(40)
    world = drifting(data, name="sudden", start=2, share=0.7)
    plain, found = (
        run_rounds(federation(run_of(algorithm=chosen), world, data))[0] for chosen in ("fedavg", algorithm)
    )
    assert torch.equal(found.w, plain.w)


def test_the_true_concepts_keep_a_model_that_returns() -> None:
    """While a concept is away, nobody trains its model."""
    data = vectors(40)
    world = drifting(data, rounds=6, name="window", start=2, until=4, concepts=[{"labels": ROTATED}])
    oracle = {"name": "ifca", "assign": "concept"}
    half = run_rounds(federation(run_of(algorithm=oracle), world, data), 2)[0].extra["models"][0]
    fed = federation(run_of(algorithm=oracle), world, data)
    state, _ = run_rounds(fed, 4)
    assert torch.equal(state.extra["models"][0], half)


def test_clients_with_one_served_model_are_tested_under_their_own_concepts() -> None:
    data = vectors(60)
    world = drifting(data, name="sudden", start=1, clients=[[1]], concepts=[{"swap": [[0, 1]]}])
    chosen = run_of(algorithm={"name": "ifca", "clusters": 1}, evaluation={"clients_every": 1})
    _, records = run_rounds(federation(chosen, world, data))
    table = records[-1].client_scores
    assert table["served_accuracy"] == pytest.approx(table["accuracy"], abs=1e-12)
    assert len({*table["accuracy"]}) > 1


@pytest.mark.parametrize(
    ("before", "after", "drifted"),
    [
        ({0: 0, 1: 1}, {0: 0, 1: 2}, [0.0, 1.0]),
        ({0: 0, 1: 1}, {0: 0, 1: 1}, [0.0, 0.0]),
        ({0: 0}, {0: 0, 1: 2}, [0.0, 0.0]),
    ],
)
def test_the_round_before_is_that_of_all_clients_that_held_samples(
    before: dict[int, int], after: dict[int, int], drifted: list[float]
) -> None:
    """Client 1, not drawn in the round before, held other labels in it, the same samples (whose loss is the same), or none."""
    data = vectors(count=24, features=4)
    inputs, labels = data.train_inputs.clone(), data.train_labels.clone()
    inputs[16:], labels[16:] = inputs[8:16], (labels[8:16] + 1) % 3
    world = timeline(deal((8, 8, 8)), [before, after], clients=2)
    algorithm = {"name": "feddrift", "reference": "round", "delta": 0.0}
    chosen = settings(algorithm=algorithm, local={"steps": 5, "batch_size": 8, "lr": 0.5})
    _, records = run_rounds(federation(chosen, world, dataset(inputs, labels, 3), cohorts=[[0], [0, 1]]))
    assert records[1].clients["drifted"] == drifted
