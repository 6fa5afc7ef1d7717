"""Rules that fix the label sets of the clients: shards, two_label_shards, label_halves, partial_overlap, distinct."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from worlds import plugin


def deal(name, labels, clients, classes, seed=0, **chosen):
    return plugin("partitions", name, **chosen).deal(labels, clients, classes, seed)


def balanced(classes, each, seed=0):
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(classes), each))


def label_sets(shares, labels):
    return [set(labels[share].tolist()) for share in shares]


def table(shares, labels, classes):
    return np.array([np.bincount(labels[share], minlength=classes) for share in shares])


def assert_everything_once(shares, labels):
    assert np.array_equal(np.sort(np.concatenate(shares)), np.arange(len(labels)))


@given(
    classes=st.integers(2, 8),
    k=st.integers(1, 4),
    turns=st.integers(1, 3),
    each=st.integers(12, 30),
    seed=st.integers(0, 5),
)
@settings(max_examples=30, deadline=None)
def test_shards_give_each_client_at_most_k_classes_of_equal_size(classes, k, turns, each, seed):
    assume(k <= classes)
    clients = classes * turns
    labels = balanced(classes, each)
    shares = deal("shards", labels, clients, classes, seed, classes_per_client=k)
    assert_everything_once(shares, labels)
    assert all(len(held) <= k for held in label_sets(shares, labels))
    lengths = [len(share) for share in shares]
    assert max(lengths) - min(lengths) <= k
    if each % (k * turns) == 0:
        assert max(lengths) == min(lengths)


def test_shards_are_contiguous_runs_of_the_stored_order():
    """One class, K = 1: every client's share is a run of positions."""
    shares = deal("shards", np.zeros(20, dtype=np.int64), 4, 1, classes_per_client=1)
    assert sorted(share.tolist() for share in shares) == [list(range(start, start + 5)) for start in (0, 5, 10, 15)]


@pytest.mark.parametrize("classes", [4, 10])
def test_two_shard_pairs_neighbors_at_first_and_then_ever_farther_labels(classes):
    """In turn q client b holds, in the shuffled order of labels, the b-th and the one 1 + q mod (C - 1) places after it."""
    clients, labels = 3 * classes, balanced(classes, 61)
    shares = deal("two_label_shards", labels, clients, classes)
    assert_everything_once(shares, labels)
    counts, held = table(shares, labels, classes), label_sets(shares, labels)
    assert all(np.ptp(counts[counts[:, label] > 0, label]) <= 1 for label in range(classes))
    shuffled = [(held[b] & held[b - 1 if b else classes - 1]).pop() for b in range(classes)]
    for client, own in enumerate(held):
        turn, first = divmod(client, classes)
        assert own == {shuffled[first], shuffled[(first + 1 + turn) % classes]}


@pytest.mark.parametrize(("classes", "batches"), [(100, 10), (200, 20)])
def test_two_shard_deals_batches_of_ten_labels(classes, batches):
    labels = balanced(classes, 4)
    shares = deal("two_label_shards", labels, batches, classes)
    held = table(shares, labels, classes) > 0
    assert (held.sum(axis=1) == 20).all()
    assert len(np.unique(held.T, axis=0)) == batches  # labels of one batch are held by the same clients
    assert (held.sum(axis=0) == 2).all()
    assert_everything_once(shares, labels)


@given(classes=st.integers(2, 9), clients=st.integers(1, 12), seed=st.integers(0, 30))
@settings(max_examples=60, deadline=None)
def test_two_shard_deals_at_random_when_clients_do_not_divide(classes, clients, seed):
    assume(2 * clients >= classes)
    labels = balanced(classes, 30)
    held = table(deal("two_label_shards", labels, clients, classes, seed), labels, classes) > 0
    assert (held.sum(axis=1) == 2).all()
    wanted = held.sum(axis=0)
    assert wanted.max() - wanted.min() <= 1


@pytest.mark.parametrize("classes", [4, 5, 10])
def test_half(classes):
    labels = balanced(classes, 13)
    shares = deal("label_halves", labels, 6, classes)
    lower = set(range(classes // 2))
    assert label_sets(shares, labels) == [lower] * 3 + [set(range(classes)) - lower] * 3
    assert_everything_once(shares, labels)


@pytest.mark.parametrize(
    ("classes", "first", "second"), [(10, (0, 6), (4, 10)), (100, (0, 60), (40, 100)), (200, (0, 120), (80, 200))]
)
def test_partial_overlap(classes, first, second):
    labels = balanced(classes, 9)
    shares = deal("partial_overlap", labels, 4, classes)
    assert label_sets(shares, labels) == [set(range(*first))] * 2 + [set(range(*second))] * 2
    assert_everything_once(shares, labels)
    held = table(shares, labels, classes)
    common = range(second[0], first[1])
    assert all(held[:2, label].sum() == 5 and held[2:, label].sum() == 4 for label in common)


def test_partial_overlap_with_four_labels_leaves_the_last_unused():
    labels = balanced(4, 12)
    shares = deal("partial_overlap", labels, 6, 4)
    assert label_sets(shares, labels) == [{0, 2}] * 3 + [{1, 2}] * 3
    assert np.array_equal(np.sort(np.concatenate(shares)), np.flatnonzero(labels < 3))


@pytest.mark.parametrize(("classes", "width"), [(4, 1), (10, 1), (100, 10), (200, 20)])
@pytest.mark.parametrize("sharing", [1, 3])
def test_distinct(classes, width, sharing):
    labels = balanced(classes, 7)
    blocks = classes // width
    shares = deal("label_blocks", labels, blocks * sharing, classes)
    expected = [set(range(block * width, (block + 1) * width)) for block in range(blocks) for _ in range(sharing)]
    assert label_sets(shares, labels) == expected
    assert_everything_once(shares, labels)
    lengths = table(shares, labels, classes).max(axis=1)
    assert set(lengths.tolist()) <= {7 // sharing, -(-7 // sharing)}
