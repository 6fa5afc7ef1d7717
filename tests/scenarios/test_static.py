"""Static federation, and what every timeline promises."""

from __future__ import annotations

import numpy as np
import pytest

from fedtide.core.errors import SettingsError
from fedtide.world.timeline import Timeline
from worlds import timeline, world


def test_everybody_is_there_with_everything():
    given = world()
    made = timeline("static", given, rounds=5, num_clients=7)
    assert (made.rounds, made.sessions, made.num_clients, made.num_classes) == (5, 1, 7, 10)
    assert made.session_span(3) == (0, 5)
    for round_ in range(5):
        assert made.at(round_).clients.tolist() == list(range(7))
        assert made.labels_at(round_).all()
    assert np.array_equal(np.sort(np.concatenate(made.shards)), given.train)
    assert np.array_equal(made.validation, given.validation)
    assert made.notes == {"scenario": "static", "partition": "iid"}


def test_clients_without_data_stay_in_the_assignment():
    made = timeline("static", world(each=4, partition="dirichlet_class", alpha=0.01), rounds=2, num_clients=30)
    assert min(len(shard) for shard in made.shards) == 0
    assert len(made.at(0).clients) == 30


def test_the_timeline_is_a_function_of_the_seed():
    first, again, other = (timeline("static", world(seed=seed), rounds=1, num_clients=5) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first.shards, again.shards, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first.shards, other.shards, strict=True))


def test_nothing_to_deal_is_refused():
    with pytest.raises(SettingsError, match="no training samples"):
        timeline("static", world(each=2), rounds=1, num_clients=1)


def test_save_and_load(tmp_path):
    made = timeline("sessions", world(partition="dirichlet_class"), num_devices=3, num_sessions=3, rounds_pilot=2)
    made.save(tmp_path / "deep" / "timeline.npz", "its identity")
    assert [file.name for file in (tmp_path / "deep").iterdir()] == ["timeline.npz"]
    loaded = Timeline.load(tmp_path / "deep" / "timeline.npz")
    assert loaded.notes == made.notes
    assert (loaded.num_clients, loaded.num_classes) == (made.num_clients, made.num_classes)
    for name in ("assignment_of_round", "session_of_round", "label_views", "view_of_round", "validation"):
        assert np.array_equal(getattr(loaded, name), getattr(made, name))
    assert all(np.array_equal(a, b) for a, b in zip(loaded.shards, made.shards, strict=True))
    for round_ in range(made.rounds):
        assert np.array_equal(loaded.at(round_).clients, made.at(round_).clients)
        assert np.array_equal(loaded.at(round_).shards, made.at(round_).shards)
