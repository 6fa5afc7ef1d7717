"""Paired comparison of methods across seeds.

A seed fixes the world, the first model and the cohorts of every method, so methods are compared seed by seed: what
counts is the spread of the differences, not the spread of the accuracies.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

LEVEL = 0.05
"""Error rate: intervals cover with probability 1 - LEVEL, a Holm-corrected p below it counts as a difference."""

COLUMNS = ("pairs", "difference", "low", "high", "p", "p_holm", "wilcoxon", "wilcoxon_holm")
"""What :func:`compare` computes."""

_ROUNDING = 1e-12

WILCOXON_PAIRS = 6
"""Fewest pairs with which the two-sided signed-rank test can reach p < 0.05 at all (2 / 2^6 = 0.031)."""


def holm(p: pd.Series) -> pd.Series:
    """Holm's step-down correction over the p-values that are not NaN (Holm 1979).

    The i-th smallest of m (from 0) is multiplied by m - i; results never fall along that order and end at 1.
    """
    ordered = p.dropna().sort_values(kind="stable")
    factors = np.arange(len(ordered), 0, -1)
    return (ordered * factors).cummax().clip(upper=1.0).reindex(p.index)


def compare(values: pd.DataFrame, reference: Any) -> pd.DataFrame:
    """Every method against one, over the seeds that both have.

    Args:
        values: one row per seed, one column per method; NaN where a run is not complete.
        reference: the column the others are compared with.

    Returns:
        One row per other column, indexed by it: ``pairs``; ``difference`` (method minus reference, mean over pairs);
        ``low``, ``high`` (95 % t interval of one comparison, not corrected); ``p``, ``p_holm`` (paired t-test);
        ``wilcoxon``, ``wilcoxon_holm`` (signed-rank test, from 6 pairs). NaN where there are fewer than 2 pairs or the
        difference is the same on every seed, since then there is no spread to judge it by.
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


def verdict(row: Mapping[Hashable, Any]) -> str:
    """What one row of :func:`compare` allows to say."""
    if row["pairs"] == 0:
        return "no common seed"
    if row["pairs"] == 1:
        return "one seed: n/a"
    if math.isnan(row["p"]):
        return "equal on every seed" if abs(row["difference"]) < _ROUNDING else "same difference on every seed: n/a"
    if row["p_holm"] >= LEVEL:
        return "no difference shown"
    return "higher" if row["difference"] > 0 else "lower"


def caveat(pairs: int) -> str:
    """How much weight a comparison over so many pairs of runs can bear."""
    if pairs == 0:
        return "No two methods completed a common seed: nothing can be compared."
    if pairs == 1:
        return "1 seed: no interval and no test is possible; any difference may be chance."
    width = stats.t.ppf(1 - LEVEL / 2, pairs - 1)
    text = (
        f"{pairs} seeds: the intervals are {width:.2f} standard errors wide to either side (1.96 with many seeds) and "
        f"rest on the assumption that differences are normally distributed"
    )
    if pairs < WILCOXON_PAIRS:
        power = "Only large and steady differences can be shown" if pairs <= 3 else "Small differences cannot be shown"
        return (
            f"{text}, which so few seeds cannot check. {power}; that none is shown does not mean there is none. The "
            f"signed-rank test is left out: below {WILCOXON_PAIRS} pairs it cannot reach p < {LEVEL:g}."
        )
    return f"{text}; the signed-rank test (Wilcoxon) does without that assumption."
