import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.core.errors import SettingsError
from fedtide.world.building.build import build_timeline
from fedtide.world.splits.longtail import thin
from support import dataset
from support import settings as run_settings

SVHN = (4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659)


def labels_of(counts):
    return np.repeat(np.arange(len(counts)), counts)


def counts_after(labels, *arguments, **options):
    return np.bincount(labels[thin(labels, *arguments, **options)], minlength=labels.max() + 1)


@pytest.mark.parametrize(
    ("classes", "each", "totals"),
    [
        (10, 5000, {1: 50000, 0.5: 36223, 0.4: 32989, 0.1: 20431, 0.06: 17803, 0.05: 17023, 0.04: 16158, 0.01: 12406}),
        (10, 6000, {1: 60000, 0.5: 43469, 0.4: 39586, 0.1: 24516, 0.06: 21365, 0.05: 20428, 0.04: 19391, 0.01: 14886}),
        (100, 500, {1: 50000, 0.5: 36029, 0.4: 32714, 0.1: 19573, 0.06: 16754, 0.05: 15907, 0.04: 14976, 0.01: 10847}),
        (200, 500, {1: 100000, 0.5: 72049, 0.4: 65403, 0.1: 39072, 0.06: 33425, 0.05: 31711, 0.04: 29840, 0.01: 21549}),
    ],
)
@pytest.mark.parametrize("mode", ["clip", "feasible"])
def test_published_totals_of_balanced_sets(classes, each, totals, mode):
    labels = labels_of([each] * classes)
    assert {imbalance: len(thin(labels, imbalance, mode)) for imbalance in totals} == totals


def test_clip_on_unbalanced_svhn():
    labels = labels_of(SVHN)
    totals = {1: 62156, 0.5: 50694, 0.1: 27559, 0.05: 22563, 0.01: 15800}
    assert {imbalance: len(thin(labels, imbalance)) for imbalance in totals} == totals


@given(
    counts=st.lists(st.integers(1, 60), min_size=1, max_size=6),
    imbalance=st.floats(0.01, 1),
    seed=st.integers(0, 2**31),
    data=st.data(),
)
@settings(max_examples=60, deadline=None)
def test_feasible_is_the_largest_exact_profile(counts, imbalance, seed, data):
    order = data.draw(st.permutations(range(len(counts))))
    labels = labels_of(counts)

    def profile(head):
        return [math.floor(head * imbalance ** (rank / max(len(counts) - 1, 1))) for rank in range(len(counts))]

    kept = counts_after(labels, imbalance, "feasible", order, seed)[order].tolist()
    assert kept == profile(kept[0])
    assert any(wanted > counts[label] for wanted, label in zip(profile(kept[0] + 1), order, strict=True))


@given(st.integers(0, 2**31), st.floats(0.02, 1), st.floats(0.02, 1))
@settings(max_examples=30, deadline=None)
def test_stronger_thinning_keeps_a_subset(seed, one, other):
    labels = np.random.default_rng(1).permutation(labels_of([50] * 5))
    weak, strong = (thin(labels, imbalance, seed=seed) for imbalance in (max(one, other), min(one, other)))
    assert set(strong.tolist()) <= set(weak.tolist())
    assert (np.diff(weak) > 0).all()


@pytest.mark.parametrize("mode", ["clip", "feasible"])
def test_the_order_is_taken(mode):
    assert counts_after(labels_of([20, 20, 20]), 0.25, mode, (2, 0, 1)).tolist() == [10, 5, 20]


def test_choice_depends_on_the_seed_only():
    labels = labels_of([40] * 4)
    assert thin(labels, 0.1, seed=3).tolist() == thin(labels, 0.1, seed=3).tolist()
    assert thin(labels, 0.1, seed=3).tolist() != thin(labels, 0.1, seed=4).tolist()


def test_a_run_keeps_every_sample_unless_an_imbalance_is_asked_for():
    labels = labels_of([90, 70, 50])
    data = dataset(torch.zeros(len(labels), 2), torch.from_numpy(labels), 3)

    def kept(**tail):
        chosen = run_settings(long_tail=tail, scenario={"name": "static", "num_clients": 5}, partition={"name": "iid"})
        return np.bincount(labels[np.concatenate(build_timeline(chosen, data).shards)]).tolist()

    assert kept() == [90, 70, 50]
    assert kept(imbalance=1.0) == [70, 70, 50]


def test_an_order_that_does_not_list_each_class_and_an_empty_largest_class_are_refused():
    with pytest.raises(SettingsError, match=r"long_tail.order = \(0, 0, 1\): should list each class 0..2 once"):
        thin(labels_of([5, 5, 5]), 0.5, order=(0, 0, 1))
    with pytest.raises(SettingsError, match="no sample remains"):
        thin(labels_of([0, 5, 5]), 0.5, mode="feasible")
