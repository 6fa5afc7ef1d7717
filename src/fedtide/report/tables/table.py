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
from fedtide.report.tables.transitions import evaluated_sessions
from fedtide.settings.experiment import ReportSettings
from fedtide.settings.scores import ACCURACY, Score, capitalized

_TARGET_SHARE = 0.9
_METRICS = (
    "final", "best", "last", "transition", "drop",
    *(f"{name}{end}" for end in ("", "_served", "_global", "_estimated") for name in Forgetting._fields),
    "bytes", "latency", "energy", "rounds_to_target", "bytes_to_target",
    *metrics.GROUP_METRICS,
)  # fmt: skip


@dataclass(frozen=True)
class Table(MethodTable):
    """The main table.

    Attributes:
        score: that the columns about rounds are about.
        settings: the block ``report`` of the settings.
        target: score for rounds and bytes to target; by default nine tenths of the best method's mean of the last rounds (of
            a score on the next period, of its mean over the periods), rounded down to whole percent, or ten ninths, rounded up,
            where lower is better; NaN without a complete run, or where runs end at the target of ``stop``, which has a table
            of its own.
        target_source: where it comes from, in words.
        beside: the same score of the other models, in columns that end in ``_served`` or ``_global``.
    """

    score: Score
    settings: ReportSettings
    target: float
    target_source: str
    beside: Score | None = None

    @property
    def scale(self) -> Scale:
        return Scale(self.score.share)

    @property
    def level(self) -> Column:
        """The column that sums a method up in one number: the best value, or a mean where test samples change."""
        return next(
            column
            for key in (self.score.mean_next, "best", "last", "final")
            for column in self.columns
            if column.key == key
        )


def tabulate(records: Records, settings: ReportSettings) -> Table:
    """All metrics of all runs."""
    score, histories = records.score, dict(list(records.history.groupby("key", sort=False)))
    empty = records.history.iloc[:0]
    curves = {key: histories.get(key, empty) for key in records.runs["key"]}
    curves = {key: history.assign(score=history[records.column]) for key, history in curves.items()}
    beside = records.beside
    rows = [
        _of_run(curve, score, settings, evaluated_sessions(records, key, settings.transition_counting))
        | _of_others(curve, score, beside)
        for key, curve in curves.items()
    ]
    measured = _measured(records)
    forgetting = [_forgetting(records, key) for key in records.runs["key"]]
    tails = [_long_tail(records, key) for key in records.runs["key"]]
    parts = (pd.DataFrame(part, index=records.runs.index) for part in (rows, forgetting, tails))
    runs = pd.concat([records.runs, *parts], axis=1)
    target, source = settings.target, "report.target"
    if target is None:
        target, source = _target(runs, score, settings.last)
        if any("stop.target" in each for each in records.settings.values()):  # runs that ended at another target
            target = math.nan
    whole = dict(list(records.whole.groupby("key", sort=False)))
    reached = [_to_target(whole.get(key, empty), records.column, score, target) for key in curves]
    runs["rounds_to_target"], runs["bytes_to_target"] = zip(*reached, strict=True)
    shown = [str(name) for name, known in runs.notna().any().items() if known]
    unmeasured = {*_METRICS}.difference(measured)
    columns = [each for each in _columns(score, beside, settings, target, shown) if each.key not in unmeasured]
    return Table(runs, over_seeds(runs, measured), columns, score, settings, target, source, beside)


def _measured(records: Records) -> list[str]:
    """The metrics that fit the score.

    Rounds of different periods are tested on different samples: none of them is the best. The next period's are averaged.
    """
    score, beside = records.score, records.beside
    without: set[str] = set()
    if score.ahead:
        without = {"best", "last", "drop"}
    elif records.has_periods:
        without = {"best"}
    if score.served:  # known at the end of a period only
        without |= {"best", "last", "transition", "drop", "rounds_to_target", "bytes_to_target"}
    without |= {
        f"{name}_{side}" for name in Forgetting._fields for side in ("served", "global") if side != _side(beside)
    }
    others = [] if beside is None else [_whole(beside)]
    worst = [_worst(score).mean_next] if score.served and score.ahead else []
    ahead = [score.mean_next] if score.ahead else []
    return [*ahead, *others, *worst, *(name for name in _METRICS if name not in without)]


def _side(beside: Score | None) -> str:
    """End of the names of metrics of the other models."""
    return "" if beside is None else "served" if beside.served else "global"


def _whole(beside: Score) -> str:
    """The metric that sums up a run by the score of the other models."""
    return beside.mean_next if beside.ahead else f"final_{_side(beside)}"


def _worst(served: Score) -> Score:
    """The score of the worst decile of clients."""
    return Score(f"{served.present.name}_worst_decile").next


def _of_others(history: pd.DataFrame, score: Score, beside: Score | None) -> dict[str, float]:
    """The score of the other models, and of the worst decile of clients."""
    found: dict[str, float] = {}
    sessions, rows = history["session"], history.get(rows_column())
    for other in (each for each in (beside, _worst(score) if score.served and score.ahead else None) if each):
        values = history.get(f"test_{other.name}", pd.Series(math.nan, history.index))
        whole = metrics.mean_next(values, sessions, rows) if other.ahead else metrics.final(values)
        found[other.mean_next if other.over_clients else _whole(other)] = whole
    return found


def _of_run(history: pd.DataFrame, score: Score, settings: ReportSettings, sessions: list[int]) -> dict[str, float]:
    values, session, rows = history["score"], history["session"], history.get(rows_column())
    return {
        "final": metrics.final(values),
        score.mean_next: metrics.mean_next(values, session, rows) if score.ahead else math.nan,
        "best": score.sign * metrics.best(score.sign * values),
        "last": metrics.mean_of_last(values, settings.last),
        "transition": metrics.transition_accuracy(values, session, sessions, settings.transition_window),
        "drop": score.sign * metrics.mean(metrics.drops(values, session)),
        "bytes": float(history["bytes"].iloc[-1]) if len(history) else math.nan,
        "latency": history["latency"].sum(min_count=1),
        "energy": history["energy"].sum(min_count=1),
    }


def _forgetting(records: Records, key: str) -> dict[str, float]:
    others = {"_estimated": records.estimated[key]}
    if records.beside is not None:
        others[f"_{_side(records.beside)}"] = records.forgetting_beside[key]
    named = {f"{name}{end}": value for end, each in others.items() for name, value in each._asdict().items()}
    return records.forgetting[key]._asdict() | named


def _long_tail(records: Records, key: str) -> dict[str, float]:
    frame = records.per_class[records.per_class["key"] == key].filter(regex=r"^class_\d+$")
    return metrics.group_accuracies(frame.iloc[0].to_list() if len(frame) else [], records.settings[key])


def _to_target(history: pd.DataFrame, column: str, score: Score, target: float) -> tuple[float, float]:
    if math.isnan(target):
        return math.nan, math.nan
    values, goal = score.sign * history[column], score.sign * target
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


def _columns(
    score: Score, beside: Score | None, settings: ReportSettings, target: float, shown: list[str]
) -> list[Column]:
    """What clients are served before the global model; transition metrics if sessions change, else rounds to a target."""
    scale = Scale(score.share)
    good: Literal["high", "low"] = "low" if score.lower else "high"

    def column(key: str, title: str, headline: str = "") -> Column:
        return Column(key, scale.heading(capitalized(title)), scale.value, good, headline, scale)

    def scored(key: str, title: str, rounds: str = "") -> Column:
        return column(key, title, f"{score.words} in the {rounds}" if rounds else "")

    def forgetting(end: str, of: str) -> list[Column]:
        backward = Column(f"backward{end}", f"Backward transfer{of}{scale.gap}", scale.difference, scale=scale)
        return [backward, Column(f"forgotten{end}", f"Forgetting{of}{scale.gap}", scale.value, "low", scale=scale)]

    named = "" if score == ACCURACY else f" {score.words}"
    ends = column("final", f"Final{named}", f"{score.words} at the end" if score.served else "")
    rounds = f"last {settings.last} rounds"
    columns = [ends, scored("best", f"Best{named}"), scored("last", rounds, rounds)]
    if score.ahead:
        what = f"{score.words}, averaged over the periods"
        columns = [column(score.mean_next, f"{score.words}, mean over the periods", what)]
    if beside is not None:
        end = "mean over the periods" if score.ahead else "at the end"
        if beside.served and not score.ahead:  # the headline
            columns.insert(0, column(_whole(beside), f"{beside.words}, {end}", f"{beside.words} at the end"))
        else:
            which = f"{beside.words}, {end}" if beside.served else "Global model, the same"
            columns.insert(1, column(_whole(beside), which))
    if score.ahead:
        if score.served:
            worst = _worst(score)
            columns.append(column(worst.mean_next, "Worst decile of clients", worst.words))
        columns.append(column("final", "Last period"))
    if "backward" in shown:
        columns += [column("seen", "All sessions so far"), *forgetting("", "" if beside is None else _of(score))]
        if beside is not None and f"backward_{_side(beside)}" in shown:
            own, other = columns[-2:], forgetting(f"_{_side(beside)}", _of(beside))
            columns[-2:] = [*other, *own] if beside.served else [*own, *other]
    if "backward_estimated" in shown:
        columns.append(Column("seen_estimated", "All data so far (estimate), %", formats.percent))
        title = "Backward transfer (estimate), points"
        columns.append(Column("backward_estimated", title, formats.PERCENT.difference))
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
                "" if score.ahead else f"first {settings.transition_window} rounds after a session change",
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


def _of(score: Score) -> str:
    return ", models served" if score.served else ", global model"
