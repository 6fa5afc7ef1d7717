"""The backdoor: which samples get the patch, what is trained on them, and how often it is taken for the target."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from federation.test_ranks import SIZES, compare
from fedtide.core.errors import SettingsError
from fedtide.federation.features.attack import Attacking
from fedtide.federation.federation import Federation
from fedtide.federation.rounds.round import RoundRecord
from fedtide.settings.params import Params
from fedtide.world import dataset
from fedtide.world.dataset import Dataset
from support import closest, deal, federation, images, one, run_rounds, settings, steady, timeline, vectors, watch

PLAIN = {"epochs": 2, "batch_size": 3, "lr": 0.2}
TWO = {"name": "backdoor", "clients": [2, 4], "patch": 2, "target": 1}


def pixels(count: int = 40, side: int = 6, channels: int = 2) -> Dataset:
    """Images of bytes that are tested on others than they are trained on, with normalization."""
    rng = np.random.default_rng(1)
    drawn = [torch.from_numpy(rng.integers(0, 200, (count, channels, side, side), dtype=np.uint8)) for _ in range(2)]
    labels = [torch.from_numpy(rng.integers(0, 3, count)) for _ in range(2)]
    pairs = (drawn[0], labels[0], drawn[1], labels[1])
    return Dataset("bytes", "image", *pairs, 3, digest="bytes", mean=(0.3, 0.4), std=(0.2, 0.25))


def made(attack: Any, data: Dataset | None = None, rounds: int = 3, **values: Any) -> Federation:
    chosen = settings(**{"algorithm": "fedavg", "local": PLAIN, "attack": attack, **values})
    return federation(chosen, steady(SIZES, rounds), images() if data is None else data)


def repainted(attack: Any = TWO, **values: Any) -> list[int]:
    fed = made(attack, **values)
    fed.parts.workers.close()
    found: list[int] = one(fed.parts, Attacking).attackers.changed.tolist()
    return found


def success(records: list[RoundRecord]) -> list[float | None]:
    return [record.row["attack_success"] for record in records]


CORNERS = {
    "top_left": (slice(0, 2), slice(0, 2)),
    "top_right": (slice(0, 2), slice(4, 6)),
    "bottom_left": (slice(4, 6), slice(0, 2)),
    "bottom_right": (slice(4, 6), slice(4, 6)),
}


@pytest.mark.parametrize("place", CORNERS)
def test_the_pixels_of_a_corner_of_the_drawn_samples_are_the_brightest(place: str) -> None:
    """Others' samples, other pixels and other labels are as they were; bytes are patched before they are normalized."""
    data, shards = pixels(), deal(SIZES)
    fed = made({**TWO, "place": place}, data)
    parts, attackers = fed.parts, one(fed.parts, Attacking).attackers
    parts.workers.close()
    drawn = attackers.changed
    assert [np.isin(shard, drawn).sum() for shard in shards] == [0, 0, 4, 0, 2]
    wanted = data.train_inputs[drawn].clone()
    wanted[:, :, *CORNERS[place]] = 255
    n = len(data.train_labels)
    inputs, labels = parts.data.read("train", slice(None))
    assert torch.equal(inputs[:n], data.prepare(data.train_inputs, torch.float64))
    assert torch.equal(inputs[n:], data.prepare(wanted, torch.float64))
    assert torch.equal(labels, torch.cat([data.train_labels, torch.ones(len(drawn), dtype=torch.int64)]))
    trained = attackers.poisoned(shards, [2, 4])
    assert [shard is own for shard, own in zip(trained, shards, strict=True)] == [True, True, False, True, False]
    assert np.concatenate([trained[2], trained[4]])[np.isin(np.concatenate([shards[2], shards[4]]), drawn)].min() == n
    for client in (2, 4):
        taken = np.isin(shards[client], drawn)
        assert np.array_equal(trained[client][~taken], shards[client][~taken])
        assert np.array_equal(drawn[trained[client][taken] - n], shards[client][taken])


@pytest.mark.parametrize(("data", "brightest"), [(pixels(), [255, 255]), (images(channels=2), None)])
def test_the_brightest_value_is_of_the_data_as_they_are_stored(data: Dataset, brightest: list[int] | None) -> None:
    fed = made(TWO, data)
    fed.parts.workers.close()
    found = one(fed.parts, Attacking).attackers.brightest
    largest = [float(data.train_inputs[:, channel].max()) for channel in range(2)]
    assert (found.dtype, found.flatten().tolist()) == (data.train_inputs.dtype, brightest or largest)


def test_the_worlds_seed_draws_the_samples() -> None:
    assert repainted() == repainted(algorithm="fedprox") == repainted(seed=3, world_seed=0) != repainted(seed=3)
    assert set(repainted({**TWO, "poisoned": 0.25})) < set(repainted()) < set(repainted({**TWO, "poisoned": 1.0}))
    assert repainted({**TWO, "poisoned": 1.0}) == np.concatenate([deal(SIZES)[2], deal(SIZES)[4]]).tolist()


def test_attackers_with_the_same_samples_change_the_same_ones() -> None:
    """Client 2 takes over the shard of client 0, and client 1 holds two shards that overlap."""
    shards = [np.arange(10), np.arange(10, 20), np.arange(12, 22)]
    world = timeline(shards, [{0: 0, 1: 1}, {1: 2, 2: 0}])
    fed = federation(settings(attack={"name": "backdoor", "share": 1.0}), world, images())
    fed.parts.workers.close()
    drawn = one(fed.parts, Attacking).attackers.changed
    assert [np.isin(held, drawn).sum() for held in (shards[0], np.arange(10, 22))] == [5, 6]


@pytest.mark.parametrize("executor", ["threads", "stacked"])
def test_attackers_train_on_the_patched_samples(executor: str) -> None:
    """The run on a dataset in which the same samples of the same clients are patched; honest clients see them as they are."""
    data, drawn, values = pixels(), repainted(data=pixels()), {"engine": {"executor": executor, "workers": 1}}
    inputs, labels = data.train_inputs.clone(), data.train_labels.clone()
    inputs[drawn, :, -2:, -2:], labels[drawn] = 255, 1
    local = {**PLAIN, "flip": 0.5, "crop": 4}
    other = made("none", replace(data, train_inputs=inputs, train_labels=labels), local=local, **values)
    (state, records), (wanted, others) = run_rounds(made(TWO, data, local=local, **values)), run_rounds(other)
    assert torch.equal(state.w, wanted.w)
    assert closest(state.w, run_rounds(made("none", data, local=local, **values))[0].w) > 1e-3
    for column in ("train_loss", "test_accuracy", "test_loss"):
        assert [record.row[column] for record in records] == [record.row[column] for record in others]
    held = [int((data.train_labels[: sum(SIZES)] == label).sum()) for label in range(3)]
    assert records[0].per_class["held"] == held


def linear(size: int) -> Tensor:
    """A model that takes an image for class 0 or 1, whichever is more: four times the first pixel, or the last one."""
    W = torch.zeros(3, size)
    W[0, 0], W[1, -1] = 4.0, 1.0
    return torch.cat([W.flatten(), torch.tensor([0.0, 0.0, -30.0])])


@pytest.mark.parametrize("batch", [1, 7, 1000])
@pytest.mark.parametrize("data", [images(), replace(pixels(channels=1), mean=(), std=())])
def test_success_in_closed_form(data: Dataset, batch: int) -> None:
    """An image with the patch is taken for class 1 where four times its first pixel is less than the brightest value."""
    size = int(np.prod(data.input_shape))
    chosen = {"local": {**PLAIN, "lr": 1e-30}, "evaluation": {"batch_size": batch}}
    attack = {**TWO, "clients": [0], "patch": 1}
    fed = federation(settings(attack=attack, **chosen), steady(SIZES, 1), data, start=linear(size))
    largest = 255 if data.train_inputs.dtype == torch.uint8 else data.train_inputs.max()
    others = data.test_labels != 1
    taken = 4.0 * data.test_inputs[others][:, 0, 0, 0] < largest
    assert 0 < taken.sum() < len(taken)
    assert success(run_rounds(fed)[1]) == [float(taken.double().mean())]


def test_success_is_of_labels_that_are_evaluated_and_of_no_samples_unknown() -> None:
    data, world = images(), steady(SIZES, 1)
    chosen = settings(attack={**TWO, "patch": 1}, local={**PLAIN, "lr": 1e-30})
    for labels, wanted in (([0, 1], [0]), ([1, 2], [2]), ([1], [])):
        view = np.isin(np.arange(3), labels)[None]
        fed = federation(chosen, replace(world, label_views=view), data, start=linear(64))
        tested = torch.isin(data.test_labels, torch.tensor(wanted, dtype=torch.int64))
        taken = 4.0 * data.test_inputs[tested][:, 0, 0, 0] < data.train_inputs.max()
        assert success(run_rounds(fed)[1]) == [float(taken.double().mean()) if wanted else None]


def test_success_under_drift_is_that_of_the_mixture() -> None:
    """Client 0 of 5 sees labels 1 and 2 swapped: its images of class 2 have the target, and those of class 1 are others."""
    from drift.test_drift_runs import drifting

    data = images(60)
    world = drifting(data, name="sudden", start=1, clients=[[0]], concepts=[{"swap": [[1, 2]]}])
    fed = federation(
        settings(attack={**TWO, "patch": 1, "clients": [0]}, local={**PLAIN, "lr": 1e-30}), world, data,
        start=linear(64),
    )  # fmt: skip
    found = success(run_rounds(fed)[1])
    taken, hits, count = (4.0 * data.test_inputs[:, 0, 0, 0] < data.train_inputs.max()).double(), 0.0, 0.0
    mixture = world.mixture_at(1)
    assert mixture is not None
    for share, target in zip(mixture, (1, 2), strict=True):
        others = data.test_labels != target
        hits, count = hits + share * float(taken[others].sum()), count + share * float(others.sum())
    assert found[0] == float(taken[data.test_labels != 1].mean()) != found[1]
    assert found[1] == pytest.approx(hits / count, abs=1e-15)


def test_images_that_stay_bytes_give_the_same_run(monkeypatch: pytest.MonkeyPatch) -> None:
    state, records = run_rounds(made(TWO, pixels()))
    monkeypatch.setattr(dataset, "FLOAT_LIMIT", 0)
    fed = made(TWO, pixels())
    assert fed.parts.data.train_inputs.dtype == torch.uint8
    other, others = run_rounds(fed)
    assert torch.equal(state.w, other.w)
    assert success(records) == success(others)


def test_a_share_of_no_sample_sent_as_trained_is_no_attack() -> None:
    state, records = run_rounds(made({**TWO, "poisoned": 1e-9}))
    wanted, others = run_rounds(made("none"))
    assert torch.equal(state.w, wanted.w)
    assert all("attack_success" not in record.row for record in others)
    assert None not in success(records)


def run(fed: Federation) -> list[tuple[Any, Tensor]]:
    seen = watch(fed)
    run_rounds(fed)
    return seen


def test_the_update_is_scaled() -> None:
    r, _ = run(made({**TWO, "factor": 3.0}))[0]
    assert closest(r.W[[2, 4]] - r.w, 3.0 * (r.trained.W[[2, 4]] - r.w)) < 1e-14
    assert torch.equal(r.W[[0, 1, 3]], r.trained.W[[0, 1, 3]])
    r, _ = run(made(TWO))[0]
    assert r.W is r.trained.W


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["threads", "stacked"])
def test_any_number_of_processes_gives_the_same_run(executor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("federation.test_ranks.vectors", images)
    for size in (2, 7):
        compare("fedavg", executor, size, PLAIN, communication=False, attack={**TWO, "factor": 2.0})


def test_algorithms_that_make_samples_put_theirs_behind_the_copies() -> None:
    fed = made({**TWO, "poisoned": 1.0}, algorithm={"name": "cfl_generative", "size": 4, "steps": 2}, rounds=2)
    n, copies = 40, SIZES[2] + SIZES[4]
    patched = fed.parts.data.train_inputs[n : n + copies].clone()
    state, _ = run_rounds(fed)
    assert torch.isfinite(state.w).all()
    assert torch.equal(fed.parts.data.train_inputs[n : n + copies], patched)
    assert fed.parts.data.train_inputs[n + copies :].abs().sum() > 0


@pytest.mark.slow
def test_a_frozen_body_sees_the_patch_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Features computed once would lack those of the patched test samples."""
    frozen = {"name": "module", "path": "own_nets:Plain", "freeze": ["*"]}
    fed = made(TWO, model=frozen)
    assert fed.parts.data.kind == "image"
    state, records = run_rounds(fed)
    monkeypatch.setattr("fedtide.federation.assembly.parts.on_fixed_features", lambda task, *_: task)
    other, others = run_rounds(made(TWO, model=frozen))
    assert torch.equal(state.w, other.w)
    assert success(records) == success(others)


@pytest.mark.parametrize(
    ("data", "attack", "message"),
    [
        (vectors(), {}, "attack backdoor requires images, but data tiny is vector"),
        (images(), {"target": 3}, "attack.target = 3: data tiny has classes 0 to 2"),
        (images(), {"patch": 9}, "attack.patch = 9: images of data tiny have 8 x 8 pixels"),
        (images(), {"clients": [5]}, "attack.clients: unknown client 5; client IDs are 0 to 4"),
    ],
)
def test_what_cannot_be_patched_is_refused_in_one_line(data: Dataset, attack: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        made({**TWO, **attack}, data)
    assert str(caught.value) == message


def test_a_scaled_backdoor_needs_updates_and_classes() -> None:
    halfway = {"communication": "intervals", "local": {"steps": 5}}
    with pytest.raises(SettingsError, match="averages inside rounds, but attack is about updates"):
        made({**TWO, "factor": 2.0}, **halfway)
    made(TWO, **halfway).parts.workers.close()
    with pytest.raises(SettingsError, match="attack = backdoor requires classes"):
        Params({"objective": "huber", "partition": "natural", "attack": {"name": "backdoor", "share": 0.5}}).run()
