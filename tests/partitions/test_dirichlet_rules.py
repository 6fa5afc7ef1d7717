"""The Dirichlet rules and iid: exact sizes, every sample once, published statistics."""

import importlib
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worlds import plugin

rule = partial(plugin, "partitions")
ALPHAS = st.sampled_from([1e-3, 0.01, 0.1, 0.6, 100.0])
COUNTS = st.lists(st.integers(1, 12), min_size=1, max_size=6)


def shuffled(counts, seed=0):
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))


def long_tail(imbalance, largest=5000, classes=10):
    return np.repeat(
        np.arange(classes), [int(largest * imbalance ** (label / (classes - 1))) for label in range(classes)]
    )


def sizes(shares):
    return np.array([len(share) for share in shares])


def total_variation(shares, labels):
    """Mean over clients of the distance of their label shares from those of all."""
    classes = int(labels.max()) + 1
    everybody = np.bincount(labels, minlength=classes) / len(labels)
    own = np.array([np.bincount(labels[share], minlength=classes) / len(share) for share in shares])
    return float(np.abs(own - everybody).sum(axis=1).mean() / 2)


def assert_everything_once(shares, labels):
    assert np.array_equal(np.sort(np.concatenate(shares)), np.arange(len(labels)))


@given(
    name=st.sampled_from(["dirichlet_client", "dirichlet_equal", "dirichlet_session", "iid"]),
    counts=COUNTS,
    alpha=ALPHAS,
    data=st.data(),
)
@settings(max_examples=40, deadline=None)
def test_equal_rules_deal_everything_once_in_equal_sizes(name, counts, alpha, data):
    labels = shuffled(counts)
    clients = data.draw(st.integers(1, len(labels)))
    chosen = {} if name == "iid" else {"alpha": alpha}
    shares = rule(name, **chosen).deal(labels, clients, len(counts), data.draw(st.integers(0, 9)))
    assert_everything_once(shares, labels)
    assert sizes(shares).max() - sizes(shares).min() <= 1


@given(name=st.sampled_from(["dirichlet_class", "dirichlet_balanced"]), counts=COUNTS, alpha=ALPHAS, data=st.data())
@settings(max_examples=60, deadline=None)
def test_unequal_rules_deal_everything_once_and_keep_their_promise(name, counts, alpha, data):
    labels = shuffled(counts)
    clients = data.draw(st.integers(1, len(labels)))
    most = len(labels) // clients if name == "dirichlet_class" else 0
    least = data.draw(st.integers(0, most))
    shares = rule(name, alpha=alpha, min_per_client=least).deal(labels, clients, len(counts), 3)
    assert_everything_once(shares, labels)
    assert sizes(shares).min() >= least


@given(counts=COUNTS, data=st.data())
@settings(max_examples=30, deadline=None)
def test_stratified_iid_deals_every_class_evenly(counts, data):
    labels = shuffled(counts)
    clients = data.draw(st.integers(1, len(labels)))
    shares = rule("iid", stratified=True).deal(labels, clients, len(counts), 0)
    per_class = np.array([np.bincount(labels[share], minlength=len(counts)) for share in shares])
    assert (per_class.max(axis=0) - per_class.min(axis=0) <= 1).all()
    assert_everything_once(shares, labels)
    assert sizes(shares).max() - sizes(shares).min() <= 1


@pytest.mark.parametrize(
    ("alpha", "imbalance", "published"),
    [
        (0.1, 1.0, 0.662),
        (0.1, 0.01, 0.467),
        (0.6, 1.0, 0.427),
        (0.6, 0.1, 0.363),
        (0.6, 0.01, 0.298),
    ],
)
def test_total_variation_of_the_equal_rule(alpha, imbalance, published):
    """100 clients, 10 classes of up to 5000 samples; mean over seeds."""
    labels = long_tail(imbalance)
    measured = [
        total_variation(rule("dirichlet_equal", alpha=alpha).deal(labels, 100, 10, seed), labels) for seed in range(4)
    ]
    assert np.mean(measured) == pytest.approx(published, abs=0.02)


@pytest.mark.parametrize("name", ["dirichlet_client", "dirichlet_equal", "dirichlet_session"])
def test_a_large_concentration_gives_everybody_the_population(name):
    labels = shuffled([200] * 5)
    mixed = total_variation(rule(name, alpha=1e6).deal(labels, 5, 5, 0), labels)
    skewed = total_variation(rule(name, alpha=0.01).deal(labels, 5, 5, 0), labels)
    assert mixed < 0.12
    assert skewed > 0.4


def test_the_global_base_follows_the_population():
    """With equal wishes for all classes, rare ones are dealt first; with the population's, at their frequency."""
    labels = shuffled([2700, 270, 30])

    def rare_first_samples(base):
        deals = (rule("dirichlet_equal", alpha=1e6, base=base).deal(labels, 30, 3, seed) for seed in range(3))
        return sum(int(labels[share[0]] != 0) for shares in deals for share in shares)

    assert rare_first_samples("global") < 0.2 * 90
    assert rare_first_samples("uniform") > 0.4 * 90


def test_both_bases_are_the_same_for_balanced_classes():
    labels = shuffled([40] * 5)
    uniform, population = (rule("dirichlet_equal", base=base).deal(labels, 7, 5, 0) for base in ("uniform", "global"))
    assert all(np.array_equal(a, b) for a, b in zip(uniform, population, strict=True))


def test_the_remainder_goes_to_the_first_client_if_asked():
    labels = shuffled([13, 10])
    assert sizes(rule("dirichlet_equal", remainder="first").deal(labels, 5, 2, 0)).tolist() == [7, 4, 4, 4, 4]
    assert sizes(rule("dirichlet_equal").deal(labels, 5, 2, 0)).tolist() == [5, 5, 5, 4, 4]


@pytest.mark.parametrize(
    ("samples", "clients", "first", "others"),
    [(50000, 100, 599, 499), (60000, 100, 600, 600), (48000, 500, 96, 96)],
)
def test_reference_sizes_truncate_as_published(samples, clients, first, others):
    labels = np.zeros(samples, dtype=np.int64)
    reference = sizes(rule("dirichlet_client", sizes="reference").deal(labels, clients, 1, 0))
    assert reference[0] == first
    assert (reference[1:] == others).all()
    exact = sizes(rule("dirichlet_client").deal(labels, clients, 1, 0))
    assert (exact == samples // clients).all()


def test_lognormal_sizes():
    """The logarithms of the sizes have the standard deviation asked for."""
    labels = np.zeros(40000, dtype=np.int64)
    for kind in ("exact", "reference"):
        skewed = sizes(rule("dirichlet_client", sigma=0.5, sizes=kind).deal(labels, 200, 1, 0))
        assert skewed.sum() == 40000
        assert np.log(skewed).std() == pytest.approx(0.5, abs=0.08)


def test_early_clients_of_a_session_get_what_they_want():
    """Filling client after client pushes the last ones to the few classes that are left."""
    labels = shuffled([100] * 10)
    first, last = [], []
    for seed in range(10):
        shares = rule("dirichlet_session", alpha=0.1).deal(labels, 20, 10, seed)
        first.append(len(np.unique(labels[shares[0]])))
        last.append(len(np.unique(labels[shares[-1]])))
    assert np.mean(last) < 0.7 * np.mean(first)


def test_literal_and_efficient_session_rules_agree_when_nothing_runs_out():
    """The first client meets no empty class: both rules draw the same numbers and the same samples."""
    labels = shuffled([50] * 4)
    literal, efficient = (rule("dirichlet_session", alpha=1e6, rule=kind) for kind in ("literal", "efficient"))
    first = [chosen.deal(labels, 8, 4, 0)[0] for chosen in (literal, efficient)]
    assert np.array_equal(*first)


@pytest.mark.parametrize(("kind", "expected"), [("literal", [1.0, 0.5**14, 0.0]), ("efficient", [1.0, 0.0, 0.0])])
def test_a_session_client_gives_up_after_three_tries_per_label_and_five(monkeypatch, kind, expected):
    """3 labels: 14 tries."""
    module = importlib.import_module("fedtide.world.partitions.dirichlet_session")
    seen = []
    monkeypatch.setattr(module, "fill_slots", lambda *args, **kwargs: seen.append(args[4]))
    rule("dirichlet_session", rule=kind).deal(shuffled([9] * 3), 2, 3, 0)
    assert seen[0](np.array([0.0, 0.5, 1.0])).tolist() == expected


def test_class_counts_are_multinomial_not_proportional():
    """One class, two clients, alpha so large that both probabilities are 1/2: the split still varies."""
    labels = np.zeros(400, dtype=np.int64)
    split = [len(rule("dirichlet_class", alpha=1e9).deal(labels, 2, 1, seed)[0]) for seed in range(60)]
    assert np.std(split) == pytest.approx(10, rel=0.35)
    assert np.mean(split) == pytest.approx(200, abs=6)


@pytest.mark.parametrize("name", ["dirichlet_class", "dirichlet_balanced"])
def test_the_first_class_is_spread_with_the_concentration_asked_for(name):
    """The mean of the sum of squared shares of K clients is (alpha + 1) / (K alpha + 1)."""
    labels = np.repeat([0, 1], 5000)
    deals = [rule(name, alpha=0.3, min_per_client=0).deal(labels, 10, 2, seed) for seed in range(200)]
    squares = [sum((np.count_nonzero(labels[share] == 0) / 5000) ** 2 for share in shares) for shares in deals]
    assert np.mean(squares) == pytest.approx(1.3 / 4, abs=3.5 * np.std(squares) / np.sqrt(200))


@pytest.mark.parametrize("alpha", [0.1, 0.3, 1.0])
def test_balanced_clients_close_when_they_reach_the_mean(alpha):
    labels = shuffled([300] * 8)
    shares = rule("dirichlet_balanced", alpha=alpha).deal(labels, 20, 8, 0)
    per_class = np.array([np.bincount(labels[share], minlength=8) for share in shares])
    before = np.cumsum(per_class, axis=1) - per_class
    assert (before[per_class > 0] < len(labels) / 20).all()
    assert per_class.sum(axis=1).min() >= 10


def test_group_labels_need_not_start_at_zero():
    labels = shuffled([0, 0, 0, 20, 20, 20])
    for name in ("dirichlet_client", "dirichlet_equal", "dirichlet_session", "dirichlet_class", "shards"):
        assert_everything_once(rule(name).deal(labels, 6, 6, 0, group=1), labels)
