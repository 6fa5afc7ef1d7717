"""Sessions that are periods of the data's own time."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedtide.core.errors import SettingsError
from fedtide.settings.params import Params
from fedtide.world.building.build import build_timeline, untested
from fedtide.world.dataset import Dataset, Origins
from fedtide.world.partitions.natural import Natural
from fedtide.world.timeline import Timeline

MONTH = 30 * 86400
TRAIN = 400


def people(samples=600, clients=9, months=5, seed=3):
    """Samples of clients that come and go; the last third are test samples."""
    rng = np.random.default_rng(seed)
    client = rng.integers(0, clients, samples)
    time = rng.integers(0, months * MONTH, samples)
    time[client == 1] %= MONTH  # leaves after the first period
    time[client == 2] = time[client == 2] % MONTH + 3 * MONTH  # arrives in the fourth
    client[0] = time[0] = 0  # periods are counted from the first sample
    inputs, labels = torch.from_numpy(rng.normal(size=(samples, 4))), torch.from_numpy(rng.integers(0, 3, samples))
    parts = slice(None, TRAIN), slice(TRAIN, None)
    origins = Origins(*(client[part] for part in parts), *(time[part] for part in parts), tuple("abcdefghi"[:clients]))
    (x, y), (test_x, test_y) = ((inputs[part], labels[part]) for part in parts)
    return Dataset("people", "vector", x, y, test_x, test_y, 3, digest="people", origins=origins)


def settings(**scenario):
    chosen = {"name": "calendar", "period": MONTH, "rounds_per_period": 2, **scenario}
    return Params({"scenario": chosen, "partition": {"name": "natural"}, "validation": 0.2}).run()


def world(data, **scenario):
    return build_timeline(settings(**scenario), data)


def test_present_is_who_has_samples_of_the_period():
    data = people()
    made, period = world(data), data.origins.train_time // MONTH
    assert made.rounds == 10
    assert made.session_of_round.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    for round_ in range(made.rounds):
        session = made.session_of_round[round_]
        for client, shard in zip(made.at(round_).clients, made.shards_at(round_), strict=True):
            assert len(shard)
            assert (period[shard] == session).all()
            assert (data.origins.train_client[shard] == made.origin_of_client[client]).all()
    leaver, newcomer = (int(np.flatnonzero(made.origin_of_client == name)[0]) for name in (1, 2))
    assert [leaver in made.at(round_).clients for round_ in (0, 2, 8)] == [True, False, False]
    assert [newcomer in made.at(round_).clients for round_ in (0, 6, 8)] == [False, True, False]


def test_active_are_the_clients_with_samples_of_the_round():
    data = people()
    made, part = world(data), data.origins.train_time // (MONTH // 2)
    for round_ in range(made.rounds):
        at = made.at(round_).clients
        busy = [c for c, shard in zip(at, made.shards_at(round_), strict=True) if (part[shard] == round_).any()]
        assert made.active[round_].tolist() == busy
    assert sum(map(len, made.active)) < sum(len(made.at(round_).clients) for round_ in range(made.rounds))


def test_every_sample_has_one_use():
    data = people()
    made = world(data)
    own = made.held_out[: made.sessions]
    uses = [*made.shards, *(held.validation for held in own)]
    assert np.array_equal(np.sort(np.concatenate(uses)), np.arange(TRAIN))
    assert np.array_equal(np.sort(np.concatenate([held.test for held in own])), np.arange(200))


def test_all_of_the_next_period_is_tested_but_for_its_validation_samples():
    """Whatever clients remember."""
    data = people()
    made, alone, period = world(data), world(data, next_period_on="held_out"), data.origins.train_time // MONTH
    remembering = world(data, memory=3)
    for round_ in range(8):
        ahead, session = made.evaluated_ahead_at(round_), made.session_of_round[round_]
        held = np.sort(np.concatenate([ahead.train, ahead.validation]))
        assert np.array_equal(held, np.flatnonzero(period == session + 1))
        assert np.array_equal(ahead.train, np.sort(np.concatenate(made.shards_at(round_ + 2 - round_ % 2))))
        assert np.array_equal(ahead.train, remembering.evaluated_ahead_at(round_).train)
        assert not len(made.evaluated_at(round_).train)
        other = alone.evaluated_ahead_at(round_)
        assert (len(other.train), *map(list, (other.test, other.validation))) == (
            0,
            *map(list, (ahead.test, ahead.validation)),
        )
    assert made.evaluated_ahead_at(8) is made.evaluated_ahead_at(9) is None
    assert made.digest != alone.digest


def test_what_is_tested_is_saved(tmp_path):
    for ahead_on in ("all", "held_out"):
        made = world(people(), next_period_on=ahead_on)
        made.save(tmp_path / "world.npz", "x")
        again = Timeline.load(tmp_path / "world.npz", "x")
        assert again.digest == made.digest
        assert [held.train.tolist() for held in again.held_out] == [held.train.tolist() for held in made.held_out]


def test_held_out_samples_are_of_the_period_and_of_the_next():
    data = people()
    made, period, of_test = world(data), data.origins.train_time // MONTH, data.origins.test_time // MONTH
    for round_ in range(made.rounds):
        session = made.session_of_round[round_]
        held, ahead = made.evaluated_at(round_), made.evaluated_ahead_at(round_)
        assert (of_test[held.test] == session).all()
        assert (period[held.validation] == session).all()
        assert (ahead is None) == (session == 4)
        assert ahead is None or (of_test[ahead.test] == session + 1).all()
    assert not world(data, next_period=0).looks_ahead


def test_the_next_period_is_all_its_rows_also_of_clients_that_never_train():
    data = people()
    origins, visitor = data.origins, 9
    who = origins.test_client.copy()
    who[:20] = visitor
    data = replace(data, origins=replace(origins, test_client=who, clients=(*origins.clients, "visitor")))
    made, period, of_test = world(data), data.origins.train_time // MONTH, data.origins.test_time // MONTH
    for round_ in (1, 3, 5, 7):
        session, ahead = made.session_of_round[round_], made.evaluated_ahead_at(round_)
        assert len(ahead.test) == (of_test == session + 1).sum()
        assert len(ahead.train) + len(ahead.validation) == (period == session + 1).sum()
        assert visitor not in who[made.evaluated_at(round_).test]


def test_clients_that_the_partition_leaves_out_are_not_scored_on_the_next_period():
    data = people()
    chosen = settings().model_copy(update={"partition": Natural.Settings(max_clients=4)})
    few = build_timeline(chosen, data)
    for held in few.held_out:
        assert np.isin(data.origins.test_client[held.test], few.origin_of_client).all()


def test_memory_keeps_earlier_periods():
    data = people()
    made, period = world(data, memory=2), data.origins.train_time // MONTH
    held = np.concatenate(made.shards_at(6))
    assert np.unique(period[held]).tolist() == [1, 2, 3]
    assert [1 in made.origin_of_client[made.at(round_).clients] for round_ in (0, 2, 4, 6)] == [True, True, True, False]


def test_nobody_sees_the_future():
    data = people()
    shifted = {
        name: np.where((time := getattr(data.origins, name)) >= 3 * MONTH, time + 7, time)
        for name in ("train_time", "test_time")
    }
    later = replace(data.origins, **shifted)
    made, moved = world(data), world(replace(data, origins=later))
    for round_ in range(6):
        assert np.array_equal(made.at(round_).clients, moved.at(round_).clients)
        assert np.array_equal(made.active[round_], moved.active[round_])
        for shard, other in zip(made.shards_at(round_), moved.shards_at(round_), strict=True):
            assert np.array_equal(shard, other)
        assert np.array_equal(made.evaluated_at(round_).test, moved.evaluated_at(round_).test)
        assert np.array_equal(made.evaluated_at(round_).validation, moved.evaluated_at(round_).validation)
    for round_ in range(4):  # of samples after the next period
        for part in ("test", "train", "validation"):
            one, other = (getattr(each.evaluated_ahead_at(round_), part) for each in (made, moved))
            assert np.array_equal(one, other)


def test_some_of_the_periods():
    data = people()
    whole, part = world(data), world(data, first=2, last=3)
    assert part.notes["periods"] == whole.notes["periods"][1:3]
    for shard, other in zip(part.shards_at(0), whole.shards_at(2), strict=True):
        assert np.array_equal(shard, other)


def test_a_period_without_samples_is_skipped():
    data = people()
    time = data.origins.train_time
    without = replace(data.origins, train_time=np.where(time // MONTH == 2, time - MONTH, time))
    made = world(replace(data, origins=without))
    assert made.sessions == 4
    assert made.notes["skipped"] == [f"from {time.min() + 2 * MONTH}"]


@pytest.mark.parametrize("test_on", ["all", "present"])
def test_a_period_without_test_samples_is_a_session_without_a_score(test_on):
    data = people()
    time = data.origins.test_time
    moved = replace(data.origins, test_time=np.where(time // MONTH == 2, time - MONTH, time))
    plan = settings().model_copy(update={"partition": Natural.Settings(test_on=test_on)})
    made = build_timeline(plan, replace(data, origins=moved))
    assert made.sessions == 5
    assert untested(made).tolist() == [4, 5]
    assert len(made.evaluated_ahead_at(3).train)


def test_weekends_return_to_weekends():
    data = people(samples=1500)
    made, weeks = world(data, period="weekpart", last=9), world(data, period="week", last=5)
    assert made.notes["kinds"] == made.kinds == ["weekdays", "weekend"] * 4 + ["weekdays"]
    assert [name.split()[1] for name in made.notes["periods"]] == made.kinds
    assert [made.returning(session) for session in range(made.sessions)] == [False, False, *[True] * 7]
    assert made.transition_sessions == list(range(3, 10))
    assert "kinds" not in weeks.notes
    assert weeks.transition_sessions == list(range(2, 6))
    for session, kind in enumerate(made.kinds):
        days = np.concatenate([data.origins.train_time[shard] for shard in made.shards_at(2 * session)]) // 86400
        assert {day % 7 in (2, 3) for day in days.tolist()} == {kind == "weekend"}  # 1 January 1970 was a Thursday


def test_hours_are_in_the_settings_where_they_are_others():
    assert "hours" not in settings(period="daypart").scenario.canonical()
    assert settings(period="daypart", hours=[4, 12]).scenario.canonical()["hours"] == [4, 12]
    for wrong in ([12, 4], [0, 24], [5, 5], [3]):
        with pytest.raises(SettingsError, match=r"hours"):
            settings(period="daypart", hours=wrong)


@pytest.mark.parametrize(
    ("origins", "scenario", "message"),
    [
        ({"train_time": None}, {}, "scenario calendar requires a dataset with client IDs and timestamps"),
        ({"test_client": None}, {}, "scenario calendar requires a dataset with client IDs and timestamps"),
        ({}, {"last": 9}, r"scenario\.last = 9: the data has 5 periods"),
        ({"test_time": np.full(200, 4 * MONTH)}, {"last": 2}, "no round has test samples; choose longer periods"),
        ({"unit": "steps"}, {"period": "month"}, "requires times in seconds"),
    ],
)
def test_what_cannot_be(origins, scenario, message):
    data = people()
    with pytest.raises(SettingsError, match=message):
        world(replace(data, origins=replace(data.origins, **origins)), **scenario)
