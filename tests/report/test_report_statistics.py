import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtide.records.measures import statistics


def values(**methods):
    return pd.DataFrame(methods, dtype=float)


def test_holm_by_hand():
    p = pd.Series([0.04, 0.01, 0.03, math.nan])
    np.testing.assert_allclose(statistics.holm(p), [0.06, 0.03, 0.06, math.nan])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_lies_between_p_and_bonferroni_and_keeps_the_order(p):
    raw = pd.Series(p)
    corrected = statistics.holm(raw)
    assert (corrected >= raw).all()
    assert (corrected <= np.minimum(1, raw * len(p)) + 1e-12).all()
    order = np.argsort(raw, kind="stable")
    assert corrected.iloc[order].is_monotonic_increasing


def test_paired_t_by_hand():
    """Differences 1, 2, 3: t = 2 sqrt(3), and with 2 degrees of freedom P(|T| > t) = 1 - t / sqrt(2 + t^2)."""
    row = statistics.compare(values(a=[0.0, 0, 0], b=[1.0, 2, 3]), "a").loc["b"]
    t = 2 * math.sqrt(3)
    assert row["difference"] == pytest.approx(2)
    assert row["p"] == pytest.approx(1 - t / math.sqrt(2 + t**2))
    assert row["p_holm"] == row["p"]
    quantile = 0.95 * math.sqrt(2 / (1 - 0.95**2))
    assert (row["low"], row["high"]) == pytest.approx((2 - quantile / math.sqrt(3), 2 + quantile / math.sqrt(3)))
    assert math.isnan(row["wilcoxon"])


def test_signed_rank_starts_at_six_pairs():
    five, six = (values(a=np.zeros(n), b=np.arange(1.0, n + 1)) for n in (5, 6))
    assert math.isnan(statistics.compare(five, "a").loc["b", "wilcoxon"])
    assert statistics.compare(six, "a").loc["b", "wilcoxon"] == pytest.approx(2 / 2**6)


def test_holm_counts_the_comparisons_of_the_table():
    rng = np.random.Generator(np.random.Philox(1))
    noise = rng.standard_normal((8, 3))
    table = statistics.compare(values(a=np.zeros(8), b=noise[:, 0] + 3, c=noise[:, 1] + 2, d=noise[:, 2] + 1), "a")
    assert table["p_holm"].min() == pytest.approx(3 * table["p"].min())
    assert table["wilcoxon_holm"].min() == pytest.approx(3 * table["wilcoxon"].min())


def test_of_a_reference_that_was_chosen_all_pairs_are_counted():
    rng = np.random.Generator(np.random.Philox(1))
    noise = rng.standard_normal((8, 4)) + np.array([9, 0, 1, 2])
    table = values(**dict(zip("abcd", noise.T, strict=True)))
    named, chosen = statistics.compare(table, "a"), statistics.compare(table, "a", chosen=True)
    assert chosen["p"].equals(named["p"])
    assert list(chosen.index) == ["b", "c", "d"]
    assert chosen["p_holm"].min() == pytest.approx(6 * named["p"].min())
    assert (chosen["p_holm"] >= named["p_holm"]).all()
    assert (chosen["wilcoxon_holm"] >= named["wilcoxon_holm"]).all()


@pytest.mark.slow
@pytest.mark.parametrize(("methods", "seeds", "tables"), [(10, 3, 500), (20, 5, 100)])
def test_equal_methods_are_told_apart_in_at_most_five_percent_of_tables(methods, seeds, tables):
    """By whoever compares with the best one; with a correction for its comparisons alone, in 10 to 18 %."""
    rng, found = np.random.Generator(np.random.Philox(2)), np.zeros(2)
    for _ in range(tables):
        table = pd.DataFrame(rng.standard_normal((seeds, methods)) + rng.standard_normal((seeds, 1)))
        compared = statistics.compare(table, table.mean().idxmax(), chosen=True)
        found += [(p < statistics.LEVEL).any() for p in (compared["p_holm"], statistics.holm(compared["p"]))]
    assert found[0] / tables <= 0.05 + 2 * (0.05 * 0.95 / tables) ** 0.5
    assert found[1] / tables > 0.07


def test_only_common_seeds_are_paired():
    row = statistics.compare(values(a=[0.5, 0.6, math.nan, 0.9], b=[0.7, math.nan, 0.8, 0.5]), "a").loc["b"]
    assert row["pairs"] == 2
    assert row["difference"] == pytest.approx(-0.1)


def test_no_spread_no_test():
    table = statistics.compare(values(a=[0.1, 0.2, 0.3], same=[0.1, 0.2, 0.3], shifted=[0.2, 0.3, 0.4]), "a")
    assert table[["low", "high", "p", "p_holm"]].isna().all(axis=None)
    assert table["difference"].tolist() == pytest.approx([0, 0.1])
    assert statistics.verdict(table.loc["same"]) == "equal on every seed"
    assert statistics.verdict(table.loc["shifted"]) == "same difference on every seed: n/a"


def test_one_seed_allows_no_statement():
    row = statistics.compare(values(a=[0.1], b=[0.9]), "a").loc["b"]
    assert row["difference"] == pytest.approx(0.8)
    assert row[["low", "high", "p", "p_holm"]].isna().all()
    assert statistics.verdict(row) == "one seed: n/a"
    assert statistics.verdict({"pairs": 0}) == "no common seed"


@pytest.mark.parametrize(
    ("difference", "p", "wanted"), [(0.1, 0.049, "higher"), (-0.1, 0.049, "lower"), (0.1, 0.05, "no")]
)
def test_a_difference_is_claimed_below_five_percent(difference, p, wanted):
    row = {"pairs": 3, "difference": difference, "p": 0.01, "p_holm": p}
    assert statistics.verdict(row).startswith(wanted)
