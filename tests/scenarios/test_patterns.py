"""Static federation, incremental arrival and departure."""

import numpy as np
import pytest

from fedtide.core.errors import SettingsError
from worlds import presence, timeline, world


def test_clients_arrive_and_stay():
    given = world()
    made = timeline("incremental_arrival", given, rounds=9, num_clients=5, initial=2, start=3, interval=2, step=1)
    assert presence(made) == [[0, 1]] * 3 + [[0, 1, 2]] * 2 + [[0, 1, 2, 3]] * 2 + [[0, 1, 2, 3, 4]] * 2
    assert made.sessions == 1
    assert np.array_equal(np.sort(np.concatenate(made.shards)), given.train)
    assert made.notes["scenario"] == "incremental_arrival"


def test_a_session_per_change():
    chosen = {"rounds": 6, "num_clients": 5, "start": 2, "interval": 2, "session_at_change": True}
    for scenario in ("incremental_arrival", "incremental_departure"):
        more = {"initial": 3} if scenario == "incremental_arrival" else {}
        assert timeline(scenario, world(), **chosen, **more).session_of_round.tolist() == [0, 0, 1, 1, 2, 2]


def test_labels_of_those_who_never_come_are_not_evaluated():
    made = timeline("incremental_arrival", world(partition="label_halves"), rounds=3, num_clients=2, initial=1, start=5)
    assert made.labels_at(0).tolist() == [True] * 5 + [False] * 5


def test_clients_without_data_stay_in_the_assignment():
    made = timeline("static", world(each=4, partition="dirichlet_class", alpha=0.01), rounds=2, num_clients=30)
    assert min(len(shard) for shard in made.shards) == 0
    assert len(made.at(0).clients) == 30


def test_nothing_to_deal_is_refused():
    with pytest.raises(SettingsError, match="no training samples"):
        timeline("static", world(each=2), rounds=1, num_clients=1)
