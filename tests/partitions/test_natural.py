"""Clients that hold what they made."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedtide.world.dataset import Samples
from fedtide.world.partitions.natural import Natural


def assign(clients, num_clients=None, seed=0, **chosen):
    client = np.array(clients, dtype=np.int64)
    return Natural(Natural.Settings(**chosen)).assign(
        Samples(np.zeros(len(client), dtype=np.int64), client), num_clients, 2, seed
    )


@given(st.lists(st.integers(0, 9), min_size=1, max_size=50))
def test_everybody_holds_their_own(clients):
    dealt = assign(clients)
    assert dealt.origins.tolist() == sorted(set(clients))
    for origin, shard in zip(dealt.origins, dealt.shards, strict=True):
        assert shard.tolist() == [place for place, client in enumerate(clients) if client == origin]
    assert dealt.notes["left_out"] == {"clients": 0, "samples": 0}


def test_small_clients_are_left_out_and_counted_and_of_the_others_the_largest_or_a_draw_stay():
    dealt = assign([0, 0, 0, 1, 2, 2], min_samples=2)
    assert dealt.origins.tolist() == [0, 2]
    assert dealt.notes["left_out"] == {"clients": 1, "samples": 1}
    clients = np.repeat(np.arange(20), np.arange(1, 21))
    assert assign(clients, max_clients=3, choice="largest").origins.tolist() == [17, 18, 19]
    drawn = [assign(clients, max_clients=3, seed=seed).origins.tolist() for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
