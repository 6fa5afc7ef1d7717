"""Paired comparison of methods across seeds.

A seed fixes the world, the initial model and the cohorts of every method, so methods are compared seed by seed: the
relevant spread is that of the differences, not of the accuracies.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy import special, stats

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


def compare(values: pd.DataFrame, reference: Any, chosen: bool = False) -> pd.DataFrame:
    """Every method against one, over their common seeds.

    Args:
        values: one row per seed, one column per method; NaN where a run is not complete.
        reference: the column to compare with.
        chosen: whether the reference was chosen by these values, as the best one. It then is one of all pairs of methods that
            might have been compared, and Holm's correction is over all of them: among equal methods some difference is found
            in at most 5 % of comparisons, also by whoever looks at the best and the worst.

    Returns:
        One row per other column, indexed by it: ``pairs``; ``difference`` (method minus reference, mean over pairs);
        ``low``, ``high`` (95 % t interval of one comparison, not corrected); ``p``, ``p_holm`` (paired t-test);
        ``wilcoxon``, ``wilcoxon_holm`` (signed-rank test, from 6 pairs). NaN with fewer than 2 pairs, or if the
        difference is the same on every seed: there is no spread then.
    """
    others, pairs = _pairs(values.columns, reference, chosen)
    rows = [_pair((values[one] - values[other]).dropna().to_numpy(dtype=np.float64)) for one, other in pairs]
    frame = pd.DataFrame(rows, columns=COLUMNS, dtype=np.float64)
    frame = frame.assign(p_holm=holm(frame["p"]), wilcoxon_holm=holm(frame["wilcoxon"]))
    return frame.iloc[: len(others)].set_axis(others)


def _pairs(methods: pd.Index[Any], reference: Any, chosen: bool) -> tuple[pd.Index[Any], list[tuple[Any, Any]]]:
    """The other methods, and all pairs of a family of comparisons: theirs with the reference first."""
    others = methods.drop([reference])
    return others, [(other, reference) for other in others] + [*combinations(others, 2)] * chosen


def _pair(differences: np.ndarray[Any, np.dtype[np.float64]]) -> dict[str, float]:
    n = len(differences)
    row = {"pairs": n, "difference": differences.mean() if n else math.nan}
    if n < 2 or np.ptp(differences) < _ROUNDING:
        return row
    error = differences.std(ddof=1) / math.sqrt(n)
    width = special.stdtrit(n - 1, 1 - LEVEL / 2) * error
    p = 2 * special.stdtr(n - 1, -abs(row["difference"]) / error)
    row |= {"low": row["difference"] - width, "high": row["difference"] + width, "p": p}
    if n >= WILCOXON_PAIRS:
        row["wilcoxon"] = stats.wilcoxon(differences).pvalue
    return row


def compare_shares(values: pd.Series, rows: float, reference: Any) -> pd.DataFrame:
    """Every method's share of correct rows against one's, on the same rows whose single predictions are not recorded.

    The standard error is that of two independent binomial shares, sqrt(p (1 - p) / n + q (1 - q) / n). Methods mostly err on
    the same rows, so that of the difference is smaller: intervals are too wide rather than too narrow. The reference was
    chosen as the best one, see :func:`compare`.

    Args:
        values: share of each method. rows: their number n.

    Returns:
        As :func:`compare`, with ``pairs`` the rows, a normal interval and its p; no signed-rank test.
    """
    others, pairs = _pairs(values.index, reference, chosen=True)
    one, other = (values[list(names)].to_numpy(dtype=np.float64) for names in zip(*pairs, strict=True))
    difference, error = pd.Series(one - other), pd.Series(np.sqrt((one * (1 - one) + other * (1 - other)) / rows))
    width = stats.norm.ppf(1 - LEVEL / 2) * error
    p = pd.Series(2 * stats.norm.sf(difference.abs() / error.where(error > 0)))
    found = {"pairs": rows, "difference": difference, "low": difference - width, "high": difference + width, "p": p}
    frame = pd.DataFrame(found, columns=COLUMNS, dtype=np.float64).assign(p_holm=holm(p))
    return frame.iloc[: len(others)].set_axis(others)


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
