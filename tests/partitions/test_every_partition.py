"""What every rule owes its caller, whatever it does; new rules are found by themselves."""

import numpy as np
import pytest

from fedtide.core import plugins
from fedtide.world.dataset import Samples
from worlds import plugin

NAMES = plugins.names("partitions")
LABELS = np.random.default_rng(5).permutation(np.repeat(np.arange(10), 40))
SAMPLES = Samples(LABELS, client=np.random.default_rng(6).permutation(np.repeat(np.arange(10), 40)))
FIXED = ("label_blocks", "natural")  # without a draw


def deal(name, seed=0, group=0):
    return plugin("partitions", name).assign(SAMPLES, 10, 10, seed, group).shards


@pytest.mark.parametrize("name", NAMES)
def test_one_array_of_different_positions_per_client(name):
    shares = deal(name)
    assert len(shares) == 10
    assert all(share.dtype == np.int64 for share in shares)
    positions = np.concatenate(shares)
    assert len(np.unique(positions)) == len(positions)
    assert positions.min() >= 0
    assert positions.max() < len(LABELS)


@pytest.mark.parametrize("name", NAMES)
def test_the_deal_is_a_function_of_seed_and_group(name):
    first, again = deal(name), deal(name)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    for other in (deal(name, seed=1), deal(name, group=1)):
        assert name in FIXED or any(set(a) != set(b) for a, b in zip(first, other, strict=True))
