"""The final table: metrics of every run, and their mean and spread over the seeds of a method."""

import math
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from fedtide.records.frames import METHOD, Records
from fedtide.records.measures import metrics
from fedtide.records.measures.forgetting import Forgetting
from fedtide.records.measures.periods import rows_column
from fedtide.report import formats
from fedtide.report.formats import Scale
from fedtide.report.tables.method_table import Column, MethodTable, over_seeds
from fedtide.report.tables.transitions import Rules
from fedtide.settings.scores import ACCURACY, Score, capitalized

_TARGET_SHARE = 0.9
_RULES = Rules()
_OPTIONAL = ("transition", "backward", "backward_estimated", "latency", "energy", "tail")
_METRICS = (
    "final", "best", "last", "transition", "drop", *Forgetting._fields, *(f"{name}_estimated" for name in Forgetting._fields),
    "bytes", "latency", "energy", "rounds_to_target", "bytes_to_target",
    *metrics.GROUP_METRICS,
)  # fmt: skip


@dataclass(frozen=True)
class Table(MethodTable):
    """The main table.

    Attributes:
        score: that the columns about rounds are about.
        rules: which session changes are evaluated, and over how many rounds.
        target: score for rounds and bytes to target; by default nine tenths of the best method's mean of the last rounds (of
            a score on the next period, of its mean over the periods), rounded down to whole percent, or ten ninths, rounded up,
            where lower is better; NaN without a complete run.
        target_source: where it comes from, in words.
    """

    score: Score
    rules: Rules
    target: float
    target_source: str

    @property
    def scale(self) -> Scale:
        return Scale(self.score.share)

    @property
    def level(self) -> Column:
        """The column that sums a method up in one number: the best value, or a mean where test samples change."""
        return next(
            column for key in (self.score.mean_next, "best", "last") for column in self.columns if column.key == key
        )


def tabulate(records: Records, last: int, rules: Rules = _RULES, target: float | None = None) -> Table:
    """All metrics of all runs; ``last`` is the number of last rounds to average, ``target`` as in :class:`Table`."""
    score, histories = records.score, dict(list(records.history.groupby("key", sort=False)))
    empty = records.history.iloc[:0]
    curves = {key: histories.get(key, empty) for key in records.runs["key"]}
    curves = {key: history.assign(score=history[records.column]) for key, history in curves.items()}
    rows = [_of_run(curve, score, last, rules.sessions(records, key), rules.window) for key, curve in curves.items()]
    measured = _measured(records)
    forgetting = [_forgetting(records, key) for key in records.runs["key"]]
    tails = [_long_tail(records, key) for key in records.runs["key"]]
    parts = (pd.DataFrame(part, index=records.runs.index) for part in (rows, forgetting, tails))
    runs = pd.concat([records.runs, *parts], axis=1)
    source = "report.target"
    if target is None:
        target, source = _target(runs, score, last)
    runs["rounds_to_target"], runs["bytes_to_target"] = zip(
        *(_to_target(curve, score, target) for curve in curves.values()), strict=True
    )
    shown = [name for name in _OPTIONAL if runs[name].notna().any()]
    unmeasured = {*_METRICS}.difference(measured)
    columns = [column for column in _columns(score, last, target, rules, shown) if column.key not in unmeasured]
    return Table(runs, over_seeds(runs, measured), columns, score, rules, target, source)


def _measured(records: Records) -> list[str]:
    """The metrics that fit the score.

    Rounds of different periods are tested on different samples: none of them is the best. The next period's are averaged.
    """
    ahead = records.score.ahead
    without = {"best", "last", "drop"} if ahead else {"best"} if records.has_periods else set[str]()
    return [*([records.score.mean_next] if ahead else []), *(name for name in _METRICS if name not in without)]


def _of_run(history: pd.DataFrame, score: Score, last: int, sessions: list[int], window: int) -> dict[str, float]:
    values, session, rows = history["score"], history["session"], history.get(rows_column())
    return {
        "final": metrics.final(values),
        score.mean_next: metrics.mean_next(values, session, rows) if score.ahead else math.nan,
        "best": score.sign * metrics.best(score.sign * values),
        "last": metrics.mean_of_last(values, last),
        "transition": metrics.transition_accuracy(values, session, sessions, window),
        "drop": score.sign * metrics.mean_drop(values, session),
        "bytes": float(history["bytes"].iloc[-1]) if len(history) else math.nan,
        "latency": history["latency"].sum(min_count=1),
        "energy": history["energy"].sum(min_count=1),
    }


def _forgetting(records: Records, key: str) -> dict[str, float]:
    estimated = records.estimated[key]._asdict()
    return records.forgetting[key]._asdict() | {f"{name}_estimated": value for name, value in estimated.items()}


def _long_tail(records: Records, key: str) -> dict[str, float]:
    frame = records.per_class[records.per_class["key"] == key].filter(regex=r"^class_\d+$")
    return metrics.group_accuracies(frame.iloc[0].to_list() if len(frame) else [], records.settings[key])


def _to_target(history: pd.DataFrame, score: Score, target: float) -> tuple[float, float]:
    if math.isnan(target):
        return math.nan, math.nan
    values, goal = score.sign * history["score"], score.sign * target
    return metrics.rounds_to_target(values, goal), metrics.bytes_to_target(values, history["bytes"], goal)


def _target(runs: pd.DataFrame, score: Score, last: int) -> tuple[float, str]:
    """The default target, and where it comes from."""
    key, rounds = (score.mean_next, "over the periods") if score.ahead else ("last", f"over its last {last} rounds")
    means = runs[runs["state"] == "complete"].groupby(METHOD)[key].mean()
    if score.lower:
        low = float(means.min())
        words = f"ten ninths of the best method's mean {rounds}, rounded up"
        return (low if math.isnan(low) else math.ceil(100 * low / _TARGET_SHARE) / 100), words
    top = float(means.max())
    words = f"nine tenths of the best method's mean {rounds}, rounded down"
    if top <= 0:  # an R² of models that predict no better than the mean
        return math.nan, words
    return (top if math.isnan(top) else math.floor(100 * _TARGET_SHARE * top) / 100), words


def _columns(score: Score, last: int, target: float, rules: Rules, shown: list[str]) -> list[Column]:
    """Transition metrics if sessions change; else rounds to a target, meaningless if the task changes."""
    scale = Scale(score.share)
    good: Literal["high", "low"] = "low" if score.lower else "high"

    def scored(key: str, title: str, rounds: str = "") -> Column:
        headline = f"{score.words} in the {rounds}" if rounds else ""
        return Column(key, scale.heading(title), scale.value, good, headline, scale)

    named = "" if score == ACCURACY else f" {score.words}"
    columns = [
        scored("final", f"Final{named}"),
        scored("best", f"Best{named}"),
        scored("last", f"Last {last} rounds", f"last {last} rounds"),
    ]
    if score.ahead:
        title, what = capitalized(f"{score.words}, mean over the periods"), f"{score.words}, averaged over the periods"
        mean = Column(score.mean_next, scale.heading(title), scale.value, good, what, scale)
        columns = [mean, scored("final", "Last period")]
    if "backward" in shown:
        columns.append(scored("seen", "All sessions so far"))
        columns.append(Column("backward", f"Backward transfer{scale.gap}", lambda mean, _: scale.difference(mean)))
        columns.append(Column("forgotten", f"Forgetting{scale.gap}", scale.value, good="low"))
    if "backward_estimated" in shown:
        columns.append(Column("seen_estimated", "All data so far (estimate), %", formats.percent))
        title = "Backward transfer (estimate), points"
        columns.append(Column("backward_estimated", title, lambda mean, _: formats.points(mean)))
        columns.append(Column("forgotten_estimated", "Forgetting (estimate), points", formats.percent, good="low"))
    if "tail" in shown:
        names = {"head": "Head classes, %", "middle": "Middle, %", "tail": "Tail, %", "worst": "Worst class, %"}
        columns += [Column(key, title, formats.percent) for key, title in names.items()]
    traffic = Column("bytes", "Traffic", lambda mean, _: formats.human_bytes(mean), good="none")
    costs = [traffic]
    if "latency" in shown:
        costs.append(Column("latency", "Latency", lambda mean, _: formats.seconds(mean), good="none"))
        costs.append(Column("energy", "Energy", lambda mean, _: formats.joules(mean), good="none"))
    if "transition" in shown:
        return [
            *columns,
            scored(
                *("transition", "After a change"),
                "" if score.ahead else f"first {rules.window} rounds after a session change",
            ),
            Column("drop", f"{'Rise' if score.lower else 'Drop'} at a change{scale.gap}", scale.value, good="low"),
            *costs,
        ]
    if math.isnan(target):
        return [*columns, *costs]
    goal = scale.goal(target)
    return [
        *columns,
        Column("rounds_to_target", f"Rounds to {goal}", formats.rounds, good="low"),
        Column("bytes_to_target", f"Traffic to {goal}", traffic.text, good="low"),
        *costs,
    ]
