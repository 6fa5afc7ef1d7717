"""Paired comparison of methods across seeds.

A seed fixes the world, the initial model and the cohorts of every method, so methods are compared seed by seed: the
relevant spread is that of the differences, not of the accuracies.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

LEVEL = 0.05
"""Significance level: intervals cover with probability 1 - LEVEL; a Holm-corrected p below it is a difference."""

COLUMNS = ("pairs", "difference", "low", "high", "p", "p_holm", "wilcoxon", "wilcoxon_holm")
"""Columns of :func:`compare`."""

_ROUNDING = 1e-12

WILCOXON_PAIRS = 6
"""Fewest pairs with which the two-sided signed-rank test can reach p < 0.05 (2 / 2^6 = 0.031)."""


def holm(p: pd.Series) -> pd.Series:
    """Holm's step-down correction over the p-values that are not NaN (Holm 1979).

    The i-th smallest of m (from 0) is multiplied by m - i; results are monotone in that order and at most 1.
    """
    ordered = p.dropna().sort_values(kind="stable")
    factors = np.arange(len(ordered), 0, -1)
    return (ordered * factors).cummax().clip(upper=1.0).reindex(p.index)


def compare(values: pd.DataFrame, reference: Any) -> pd.DataFrame:
    """Every method against one, over their common seeds.

    Args:
        values: one row per seed, one column per method; NaN where a run is not complete.
        reference: the column to compare with.

    Returns:
        One row per other column, indexed by it: ``pairs``; ``difference`` (method minus reference, mean over pairs);
        ``low``, ``high`` (95 % t interval of one comparison, not corrected); ``p``, ``p_holm`` (paired t-test);
        ``wilcoxon``, ``wilcoxon_holm`` (signed-rank test, from 6 pairs). NaN with fewer than 2 pairs, or if the
        difference is the same on every seed: there is no spread then.
    """
    others = values.columns.drop([reference])
    rows = [_pair((values[other] - values[reference]).dropna().to_numpy(dtype=np.float64)) for other in others]
    frame = pd.DataFrame(rows, index=others, columns=COLUMNS, dtype=np.float64)
    return frame.assign(p_holm=holm(frame["p"]), wilcoxon_holm=holm(frame["wilcoxon"]))


def _pair(differences: np.ndarray[Any, np.dtype[np.float64]]) -> dict[str, float]:
    n = len(differences)
    row = {"pairs": n, "difference": differences.mean() if n else math.nan}
    if n < 2 or np.ptp(differences) < _ROUNDING:
        return row
    test = stats.ttest_1samp(differences, 0.0)
    interval = test.confidence_interval(1 - LEVEL)
    row |= {"low": interval.low, "high": interval.high, "p": test.pvalue}
    if n >= WILCOXON_PAIRS:
        row["wilcoxon"] = stats.wilcoxon(differences).pvalue
    return row


def compare_shares(values: pd.Series, rows: float, reference: Any) -> pd.DataFrame:
    """Every method's share of correct rows against one's, on the same rows whose single predictions are not recorded.

    The standard error is that of two independent binomial shares, sqrt(p (1 - p) / n + q (1 - q) / n). Methods mostly err on
    the same rows, so that of the difference is smaller: intervals are too wide rather than too narrow.

    Args:
        values: share of each method. rows: their number n.

    Returns:
        As :func:`compare`, with ``pairs`` the rows, a normal interval and its p; no signed-rank test.
    """
    others = values.drop([reference])
    difference, own = others - values[reference], float(values[reference])
    error = np.sqrt((others * (1 - others) + own * (1 - own)) / rows)
    width = stats.norm.ppf(1 - LEVEL / 2) * error
    p = pd.Series(2 * stats.norm.sf(np.abs(difference) / error.where(error > 0)), index=others.index)
    found = {"pairs": rows, "difference": difference, "low": difference - width, "high": difference + width, "p": p}
    frame = pd.DataFrame(found, index=others.index, columns=COLUMNS, dtype=np.float64)
    return frame.assign(p_holm=holm(p))


def untested(frame: pd.DataFrame) -> pd.Series[bool]:
    """Whether the methods in the rows of :func:`compare` have no test, though they are not equal on every pair."""
    same = (frame["pairs"] > 1) & (frame["difference"].abs() < _ROUNDING)
    return frame["p_holm"].isna() & ~same


def verdict(row: Mapping[Hashable, Any], unit: str = "seed") -> str:
    """Conclusion from one row of :func:`compare`, in words; ``unit``: what its pairs are."""
    if row["pairs"] == 0:
        return f"no common {unit}"
    if row["pairs"] == 1:
        return f"one {unit}: n/a"
    if math.isnan(row["p"]):
        same = abs(row["difference"]) < _ROUNDING
        return f"equal on every {unit}" if same else f"same difference on every {unit}: n/a"
    if row["p_holm"] >= LEVEL:
        return "no difference detected"
    return "higher" if row["difference"] > 0 else "lower"


def caveat(pairs: int) -> str:
    """What a comparison over this number of pairs can show."""
    if pairs == 0:
        return "No two methods completed a common seed: there is nothing to compare."
    if pairs == 1:
        return "1 seed: no interval and no test is possible; any difference may be chance."
    width = stats.t.ppf(1 - LEVEL / 2, pairs - 1)
    text = (
        f"{pairs} seeds: the intervals extend {width:.2f} standard errors to either side (1.96 with many seeds) and assume "
        f"that differences are normally distributed"
    )
    if pairs < WILCOXON_PAIRS:
        power = (
            "Only large and consistent differences are detected" if pairs <= 3 else "Small differences go undetected"
        )
        return (
            f"{text}, which cannot be checked with so few seeds. {power}; no detected difference does not mean that there is "
            f"none. The signed-rank test is omitted: below {WILCOXON_PAIRS} pairs it cannot reach p < {LEVEL:g}."
        )
    return f"{text}; the signed-rank test (Wilcoxon) does not require that assumption."
