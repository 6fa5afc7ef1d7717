"""Static federation, and what every timeline promises."""

import pytest

from fedtide.core.errors import SettingsError
from worlds import timeline, world


def test_clients_without_data_stay_in_the_assignment():
    made = timeline("static", world(each=4, partition="dirichlet_class", alpha=0.01), rounds=2, num_clients=30)
    assert min(len(shard) for shard in made.shards) == 0
    assert len(made.at(0).clients) == 30


def test_nothing_to_deal_is_refused():
    with pytest.raises(SettingsError, match="no training samples"):
        timeline("static", world(each=2), rounds=1, num_clients=1)
