"""Scores on the next period, period by period: comparisons over periods and over rows, and falls."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from fedtide.records.frames import METHOD, Method, Records, by_method
from fedtide.records.measures import statistics
from fedtide.records.measures.periods import BEFORE, ERRORS, Alarm, alarms, rows_column
from fedtide.report import findings
from fedtide.report.formats import percent
from fedtide.report.parts import Source, comparisons, warnings
from fedtide.report.tables.method_table import Comparison
from fedtide.settings.scores import ACCURACY, Score

_MOST_NAMED = 3


def by_period(records: Records, column: str) -> pd.DataFrame:
    """A row per complete run and tested period: method, ``seed``, ``period`` (from 1, of the data), ``score``, ``rows``.

    The score is that of ``column`` at the end of the period before.
    """
    history = records.history[records.history["state"] == "complete"]
    ends = history.reindex(columns=[*history.columns.union([column, rows_column()], sort=False)]).dropna(
        subset=[column]
    )
    ends = ends.groupby(["key", "session"], sort=False).tail(1)
    return ends[[*METHOD, "seed"]].assign(period=ends["session"] + 1, score=ends[column], rows=ends[rows_column()])


def compared(source: Source) -> Iterator[Comparison]:
    """Every method against the best one over the periods and, for accuracy, over the rows of each period, the last first.

    Over periods: differences of the scores on a period, averaged over the common seeds, are the pairs of a t-test. Over rows:
    see :func:`fedtide.records.measures.statistics.compare_shares`; seeds share their rows, so their mean has the error of one.
    The page shows the rows of the last period only.
    """
    records, column = source.records, source.table.level
    if not records.score.ahead or (reference := source.table.leader(column)) is None:
        return
    table = by_period(records, records.column)
    values = table.pivot(index=["seed", "period"], columns=METHOD, values="score")
    if reference not in values or values.shape[1] < 2:
        return
    gaps = values.sub(values[reference], axis=0).groupby("period").mean()
    frame = statistics.compare(gaps[_ordered(records, gaps)], reference, chosen=True)
    yield Comparison(column, reference, frame, "periods")
    if records.score.of_global != ACCURACY.next or table["rows"].isna().any():
        return
    counts, means = table.groupby("period")["rows"].mean(), values.groupby("period").mean()
    shown = True
    for period in sorted(counts.index, reverse=True):
        own = means[_ordered(records, means)].loc[period].dropna()
        if reference in own.index and len(own) > 1:
            frame = statistics.compare_shares(own, float(counts[period]), reference)
            yield Comparison(column, reference, frame, "rows", records.session_name(int(period), "period "), shown)
            shown = False


def _ordered(records: Records, table: pd.DataFrame) -> list[Method]:
    return [method for method in records.methods if method in table.columns]


def falls(records: Records) -> list[str]:
    """A line per period on which accuracy fell (``records.measures.periods.alarms``); means over a method's seeds."""
    found: dict[int, list[tuple[Method, Alarm]]] = {}
    either = [score for score in (ACCURACY.next.of_served, ACCURACY.next) if f"test_{score.name}" in records.history]
    if not either or rows_column() not in records.history:
        return []
    score = either[0]
    for method, group in by_method(by_period(records, f"test_{score.name}")).items():
        means = group.groupby("period")[["score", "rows"]].mean()
        numbers, accuracy, rows = (
            np.asarray(each, dtype=np.float64) for each in (means.index, means["score"], means["rows"])
        )
        for alarm in alarms(accuracy, rows):
            found.setdefault(int(numbers[alarm.period]), []).append((method, alarm))
    return [
        _fall(records.session_name(period, "period "), score, sorted(found[period], key=lambda each: -each[1].errors))
        for period in sorted(found)
    ]


def _fall(period: str, score: Score, fallen: list[tuple[Method, Alarm]]) -> str:
    shown = [
        f"{findings.method(method)} {percent(alarm.value)} % after {percent(alarm.before)} % ({alarm.errors:.1f} errors)"
        for method, alarm in fallen[:_MOST_NAMED]
    ]
    more = f", and {len(fallen) - _MOST_NAMED} more" if len(fallen) > _MOST_NAMED else ""
    return (
        f"{score.present.title} on {period}, before it is used for training, is more than {ERRORS:g} standard errors below "
        f"the mean of the last {BEFORE} periods: {', '.join(shown)}{more}."
    )


comparisons.add(0, compared)
warnings.add(0, lambda source: falls(source.records))
