"""Static federation, and what every timeline promises."""

import numpy as np
import pytest

from fedtide.core.errors import SettingsError
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


def test_nothing_to_deal_is_refused():
    with pytest.raises(SettingsError, match="no training samples"):
        timeline("static", world(each=2), rounds=1, num_clients=1)
