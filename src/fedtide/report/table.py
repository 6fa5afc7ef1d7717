"""The final table: metrics of every run, and their mean and spread over the seeds of a method."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from fedtide.report import formats, imbalance, metrics
from fedtide.report.records import METHOD, Method, Records
from fedtide.report.transitions import Rules

_TARGET_SHARE = 0.9
_RULES = Rules()
_METRICS = (
    "final", "best", "last", "transition", "drop", "seen", "backward", "forgotten",
    "bytes", "latency", "energy", "rounds_to_target", "bytes_to_target",
    *imbalance.METRICS,
)  # fmt: skip


@dataclass(frozen=True)
class Column:
    """One metric.

    Attributes:
        key: its name in frames.
        title: the heading.
        text: formats mean and spread.
        good: which values are marked best.
        headline: completes "accuracy in the ..."; set for metrics that methods are compared by.
    """

    key: str
    title: str
    text: Callable[[float, float], str]
    good: Literal["high", "low", "none"] = "high"
    headline: str = ""


@dataclass(frozen=True)
class Table:
    """Metrics of a comparison.

    Attributes:
        runs: ``Records.runs`` with one column per metric; shares in [0, 1], rounds, bytes.
        methods: one row per (label, initialiser): ``seeds`` (complete runs), ``diverged``, ``unfinished`` and
            ``<metric>_mean``, ``<metric>_std`` over the complete runs.
        columns: the metrics to show, in order.
        rules: which session changes are evaluated, and over how many rounds.
        target: accuracy for rounds and bytes to target, a share; by default nine tenths of the best method's mean of the last
            rounds, rounded down to whole percent, NaN without a complete run.
        target_source: where it comes from, in words.
    """

    runs: pd.DataFrame
    methods: pd.DataFrame
    columns: list[Column]
    rules: Rules
    target: float
    target_source: str

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
        """The method with the highest mean, among those with the most complete runs; None without a value."""
        means = self._means(column)
        return max(means, key=lambda names: means[names]) if means else None

    def best(self, column: Column) -> list[Method]:
        """The methods with the best mean as printed, among those with the most complete runs; none of a single one."""
        means = self._means(column)
        if len(means) < 2 or column.good == "none":
            return []
        top = max(means.values()) if column.good == "high" else min(means.values())
        return [names for names, mean in means.items() if column.text(mean, math.nan) == column.text(top, math.nan)]

    def _means(self, column: Column) -> dict[Method, float]:
        rows, key = self.rows(), f"{column.key}_mean"
        most = max(row["seeds"] for _, row in rows)
        return {names: row[key] for names, row in rows if row["seeds"] == most and not math.isnan(row[key])}


def tabulate(records: Records, last: int, rules: Rules = _RULES, target: float | None = None) -> Table:
    """All metrics of all runs; ``last`` is the number of last rounds to average, ``target`` as in :class:`Table`."""
    histories = dict(list(records.history.groupby("key", sort=False)))
    empty = records.history.iloc[:0]
    rows = [
        _of_run(histories.get(key, empty), last, rules.sessions(records, key), rules.window)
        for key in records.runs["key"]
    ]
    forgetting = [records.forgetting[key]._asdict() for key in records.runs["key"]]
    tails = [_long_tail(records, key) for key in records.runs["key"]]
    parts = (pd.DataFrame(part, index=records.runs.index) for part in (rows, forgetting, tails))
    runs = pd.concat([records.runs, *parts], axis=1)
    source = "report.target"
    if target is None:
        target, source = (
            _target(runs),
            f"nine tenths of the best method's mean over its last {last} rounds, rounded down",
        )
    runs["rounds_to_target"], runs["bytes_to_target"] = zip(
        *(_to_target(histories.get(key, empty), target) for key in runs["key"]), strict=True
    )
    shown = [name for name in ("transition", "backward", "latency", "energy", "tail") if runs[name].notna().any()]
    return Table(runs, _over_seeds(runs), _columns(last, target, rules, shown), rules, target, source)


def _of_run(history: pd.DataFrame, last: int, sessions: list[int], window: int) -> dict[str, float]:
    accuracy, session = history["test_accuracy"], history["session"]
    return {
        "final": metrics.final(accuracy),
        "best": metrics.best(accuracy),
        "last": metrics.mean_of_last(accuracy, last),
        "transition": metrics.transition_accuracy(accuracy, session, sessions, window),
        "drop": metrics.mean_drop(accuracy, session),
        "bytes": float(history["bytes"].iloc[-1]) if len(history) else math.nan,
        "latency": history["latency"].sum(min_count=1),
        "energy": history["energy"].sum(min_count=1),
    }


def _long_tail(records: Records, key: str) -> dict[str, float]:
    frame = records.per_class[records.per_class["key"] == key].filter(regex=r"^class_\d+$")
    return imbalance.accuracies(frame.iloc[0].to_list() if len(frame) else [], records.settings[key])


def _to_target(history: pd.DataFrame, target: float) -> tuple[float, float]:
    if math.isnan(target):
        return math.nan, math.nan
    accuracy = history["test_accuracy"]
    return metrics.rounds_to_target(accuracy, target), metrics.bytes_to_target(accuracy, history["bytes"], target)


def _target(runs: pd.DataFrame) -> float:
    top = runs[runs["state"] == "complete"].groupby(METHOD)["last"].mean().max()
    return float(top) if math.isnan(top) else math.floor(100 * _TARGET_SHARE * top) / 100


def _over_seeds(runs: pd.DataFrame) -> pd.DataFrame:
    rows = {}
    for method, group in runs.groupby(METHOD, sort=False):
        states, complete = group["state"].value_counts(), group[group["state"] == "complete"]
        row: dict[str, float] = {"seeds": len(complete)}
        row |= {state: int(states.get(state, 0)) for state in ("diverged", "unfinished")}
        for key in _METRICS:
            row[f"{key}_mean"], row[f"{key}_std"] = metrics.mean_std(complete[key])
        rows[method] = row
    return pd.DataFrame(list(rows.values()), index=pd.MultiIndex.from_tuples(list(rows), names=METHOD))


def _columns(last: int, target: float, rules: Rules, shown: list[str]) -> list[Column]:
    """Transition metrics if sessions change; else rounds to a target, meaningless if the task changes."""
    columns = [
        Column("final", "Final, %", formats.percent),
        Column("best", "Best, %", formats.percent),
        Column("last", f"Last {last} rounds, %", formats.percent, headline=f"last {last} rounds"),
    ]
    if "backward" in shown:
        columns.append(Column("seen", "All data so far, %", formats.percent))
        columns.append(Column("backward", "Backward transfer, points", lambda mean, _: formats.points(mean)))
        columns.append(Column("forgotten", "Forgotten, points", formats.percent, good="low"))
    if "tail" in shown:
        names = {"head": "Head classes, %", "middle": "Middle, %", "tail": "Tail, %", "worst": "Worst class, %"}
        columns += [Column(key, title, formats.percent) for key, title in names.items()]
    traffic = Column("bytes", "Traffic", lambda mean, _: formats.human_bytes(mean), good="none")
    costs = [traffic]
    if "latency" in shown:
        costs.append(Column("latency", "Latency", lambda mean, _: formats.seconds(mean), good="none"))
        costs.append(Column("energy", "Energy", lambda mean, _: formats.joules(mean), good="none"))
    if "transition" in shown:
        after = f"first {rules.window} rounds after a session change"
        return [
            *columns,
            Column("transition", "After a change, %", formats.percent, headline=after),
            Column("drop", "Drop at a change, points", formats.percent, good="low"),
            *costs,
        ]
    if math.isnan(target):
        return [*columns, *costs]
    return [
        *columns,
        Column("rounds_to_target", f"Rounds to {100 * target:.4g} %", formats.rounds, good="low"),
        Column("bytes_to_target", f"Traffic to {100 * target:.4g} %", traffic.text, good="low"),
        *costs,
    ]
