"""BalanceFL's deal: exact sizes, every sample once, turns of tau samples from the tail to the head."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.world.partitions.round_robin_chunks import RoundRobinChunks

COUNTS = st.lists(st.integers(1, 12), min_size=1, max_size=5)


def deal(labels, clients, ratio=2, seed=0):
    return RoundRobinChunks(RoundRobinChunks.Settings(ratio=ratio)).deal(labels, clients, int(labels.max()) + 1, seed)


def pairwise_distance(labels, shares):
    """Sum over unordered pairs of the L1 distance of two clients' label shares, over K (K - 1)."""
    own = np.array([np.bincount(labels[share], minlength=labels.max() + 1) / len(share) for share in shares])
    return float(np.abs(own[:, None] - own[None]).sum() / 2 / (len(own) * (len(own) - 1)))


@given(counts=COUNTS, ratio=st.sampled_from([1, 2, 4]), seed=st.integers(0, 9), data=st.data())
@settings(max_examples=60, deadline=None)
def test_everything_is_dealt_once_in_equal_sizes(counts, ratio, seed, data):
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    shares = deal(labels, data.draw(st.integers(1, len(labels))), ratio, seed)
    assert np.array_equal(np.sort(np.concatenate(shares)), np.arange(len(labels)))
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1


def test_a_cycle_goes_round_from_the_tail_to_the_head():
    """Classes of 6, 4 and 2 samples, tau 2: one client gets the tail class, the next two turns share class 1."""
    labels = np.repeat([0, 1, 2], [6, 4, 2])
    shares = deal(labels, 3, ratio=1)
    assert sorted(labels[share].tolist() for share in shares) == [[1, 1, 0, 0], [1, 1, 0, 0], [2, 2, 0, 0]]


def test_a_client_about_to_be_full_takes_what_fits_and_the_next_turn_is_whole():
    """7 samples for 2 clients (4 and 3), tau 3: two turns of 3 samples, and one more for client 0."""
    labels = np.repeat([0, 1], [4, 3])
    first, second = deal(labels, 2, ratio=1)
    assert [labels[first].tolist(), labels[second].tolist()] in ([[1, 1, 1, 0], [0, 0, 0]], [[0, 0, 0, 0], [1, 1, 1]])


def test_longer_turns_make_clients_differ_more():
    labels = np.repeat(np.arange(10), [int(500 * 0.1 ** (label / 9)) for label in range(10)])
    distances = [pairwise_distance(labels, deal(labels, 10, ratio)) for ratio in (1, 2, 4)]
    assert distances == sorted(distances)
    assert distances[0] < 0.75 * distances[2]
