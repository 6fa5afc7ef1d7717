"""Metrics of every run, and their mean and spread over the seeds of a method."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from fedtide.records.frames import METHOD, Method
from fedtide.records.measures import metrics, statistics
from fedtide.report.formats import PERCENT, Scale, over


@dataclass(frozen=True)
class Column:
    """One metric.

    Attributes:
        key: its name in frames. title: the heading. text: formats mean and spread. good: which values are marked best.
        headline: what it is, inside a sentence; set for metrics that methods are compared by.
        scale: of its values and their differences.
    """

    key: str
    title: str
    text: Callable[[float, float], str]
    good: Literal["high", "low", "none"] = "high"
    headline: str = ""
    scale: Scale = PERCENT

    def value(self, row: Mapping[str, float]) -> str:
        """The text of a method's row of :attr:`MethodTable.methods`."""
        return self.text(row[f"{self.key}_mean"], row[f"{self.key}_std"])

    def seeds(self, row: Mapping[str, float]) -> int:
        """Over how many seeds it is."""
        return int(row.get(f"{self.key}_seeds", row["seeds"]))

    def cell(self, row: Mapping[str, float]) -> str:
        """The same with the number of seeds, if it is over fewer than the method has complete runs."""
        return over(self.value(row), self.seeds(row), row["seeds"])


@dataclass(frozen=True)
class Comparison:
    """All methods against the best one by one metric: ``frame`` is what :func:`statistics.compare` returns.

    ``over``: what the intervals are over, seeds, periods or rows; ``period``: that the rows are of; ``shown``: whether the page
    has it, too.
    """

    column: Column
    reference: Method
    frame: pd.DataFrame
    over: Literal["seeds", "periods", "rows"] = "seeds"
    period: str = ""
    shown: bool = True

    @property
    def worse(self) -> list[Method]:
        """The methods that the comparison separates from the reference."""
        return self._where(self.frame["p_holm"] < statistics.LEVEL)

    @property
    def untested(self) -> list[Method]:
        """Those of which there is no test: they have fewer than two common pairs, or the same difference on each."""
        return self._where(statistics.untested(self.frame))

    @property
    def equals(self) -> list[Method]:
        """The others."""
        return self._where(~(statistics.untested(self.frame) | (self.frame["p_holm"] < statistics.LEVEL)))

    def _where(self, chosen: pd.Series[bool]) -> list[Method]:
        return [(str(label), str(start)) for label, start in self.frame.index[chosen]]


@dataclass(frozen=True)
class MethodTable:
    """Metrics of a comparison.

    Attributes:
        runs: ``Records.runs`` with one column per metric; shares in [0, 1], rounds, bytes.
        methods: one row per (label, initializer): ``seeds`` (complete runs), ``diverged``, ``unfinished`` and
            ``<metric>_mean``, ``<metric>_std`` over the complete runs, and ``<metric>_seeds``, over how many of them, where
            some method lacks some.
        columns: the metrics to show, in order.
    """

    runs: pd.DataFrame
    methods: pd.DataFrame
    columns: list[Column]

    def by_seed(self, metric: str) -> pd.DataFrame:
        """A metric of the complete runs: one row per seed, one column per method in order of appearance."""
        complete = self.runs[self.runs["state"] == "complete"]
        wide = complete.pivot(index="seed", columns=METHOD, values=metric)
        return wide.reindex(columns=[method for method in self.methods.index if method in wide.columns])

    def rows(self) -> list[tuple[Method, dict[str, Any]]]:
        """``methods`` row by row: names of the method, and values by column."""
        names = [(str(label), str(start)) for label, start in self.methods.index]
        columns = [str(name) for name in self.methods.columns]
        values = self.methods.itertuples(index=False, name=None)
        return [(method, dict(zip(columns, row, strict=True))) for method, row in zip(names, values, strict=True)]

    def leader(self, column: Column) -> Method | None:
        """The method with the best mean, among those whose mean is over the most runs; None without a value."""
        means, best = self._means(column), min if column.good == "low" else max
        return best(means, key=lambda names: means[names]) if means else None

    def against_leader(self, column: Column) -> Comparison | None:
        """Every method against the one with the best mean, over the seeds; None for a single method."""
        values = self.by_seed(column.key).replace([math.inf, -math.inf], math.nan).dropna(axis=1, how="all")
        reference = self.leader(column)
        if reference is None or reference not in values or values.shape[1] < 2:
            return None
        return Comparison(column, reference, statistics.compare(values, reference, chosen=True))

    def best(self, column: Column) -> Method | None:
        """The method that the corrected paired comparison separates from all others; None of equals, or of a single one."""
        found = None if column.good == "none" else self.against_leader(column)
        return None if found is None or len(found.worse) < len(found.frame) else found.reference

    def _means(self, column: Column) -> dict[Method, float]:
        key = f"{column.key}_mean"
        rows = [(names, row) for names, row in self.rows() if not math.isnan(row[key])]
        most = max((column.seeds(row) for _, row in rows), default=0)
        return {names: row[key] for names, row in rows if column.seeds(row) == most}


@dataclass(frozen=True)
class Sheet:
    """A table of text: headings of its columns, and the cells of each method, or of something else with these ``names``."""

    title: str
    caption: str
    headings: list[str]
    rows: Sequence[tuple[tuple[str, ...], list[str]]]
    names: tuple[str, ...] = ("Algorithm", "Initializer")


def against_leaders(table: MethodTable) -> list[Comparison]:
    """Every method against the best one, by the headline metrics; none for a single method."""
    found = (table.against_leader(column) for column in table.columns if column.headline)
    return [comparison for comparison in found if comparison is not None]


def over_seeds(runs: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """``MethodTable.methods`` of runs, with some of their metrics."""
    rows = {}
    for method, group in runs.groupby(METHOD, sort=False):
        states, complete = group["state"].value_counts(), group[group["state"] == "complete"]
        row: dict[str, float] = {"seeds": len(complete)}
        row |= {state: int(states.get(state, 0)) for state in ("diverged", "unfinished")}
        for key in keys:
            row[f"{key}_mean"], row[f"{key}_std"] = metrics.mean_std(complete[key])
            row[f"{key}_seeds"] = int(complete[key].count())
        rows[method] = row
    frame = pd.DataFrame(list(rows.values()), index=pd.MultiIndex.from_tuples(list(rows), names=METHOD))
    counts = frame[[f"{key}_seeds" for key in keys]]
    return frame.drop(columns=counts.columns[((counts == 0) | counts.eq(frame["seeds"], axis=0)).all()])
