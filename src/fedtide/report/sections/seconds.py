"""Asynchronous and synchronous methods compared: score at equal simulated seconds, time to a target, staleness."""

import math
from statistics import median

import numpy as np
import pandas as pd

from fedtide.records.frames import Records, by_method
from fedtide.records.measures import metrics
from fedtide.report import formats
from fedtide.report.charts.chart import Axis, Chart, Panel, Series
from fedtide.report.charts.methods import method_names
from fedtide.report.charts.pictures import drawings
from fedtide.report.charts.style import line_look
from fedtide.report.parts import figures, sheets
from fedtide.report.tables.method_table import Sheet


def sheet(records: Records, target: float) -> list[Sheet]:
    """The table of time, of complete runs with simulated seconds; ``target`` is the score to reach, NaN for none.

    There is none in lockstep, and none if sessions change, in which the target would mean different tasks.
    """
    score, scale = records.score, formats.Scale(records.score.share)
    history = records.history[(records.history["state"] == "complete") & records.history["elapsed"].notna()]
    if not records.asynchronous or history["session"].nunique() != 1:
        return []
    end = float(history.groupby("key")["elapsed"].max().min())
    rows, all_rounds = [], records.whole.assign(score=records.whole[records.column])
    whole = dict(list(all_rounds.groupby("key", sort=False)))
    for method, runs in by_method(history).items():
        each = [run.assign(score=run[records.column]) for _, run in runs.groupby("key", sort=False)]
        found = pd.DataFrame([_measured(run, whole[run["key"].iloc[0]], score.sign, end, target) for run in each])
        cells = [scale.value(*metrics.mean_std(found["score"]))]
        if not math.isnan(target):
            middle = {name: median(found[name]) for name in ("seconds", "updates", "uploads")}
            cells += [formats.seconds(middle["seconds"]), *(formats.rounds(middle[x]) for x in ("updates", "uploads"))]
        lost = found[["refused", "cancelled"]].mean()
        cells += [formats.rounds(float(lost[name])) for name in ("refused", "cancelled")]
        rows.append((method, cells))
    goal = [] if math.isnan(target) else [f"{what} to {scale.goal(target)}" for what in ("Time", "Updates", "Uploads")]
    caption = (
        f"Of {records.models()}. A model holds until the next one; a round in lockstep lasts as long as its slowest client. "
        f"{score.title}: mean \N{PLUS-MINUS SIGN} sample standard deviation over the seeds, at the end of the shortest run."
    )
    if goal:
        evaluated = _evaluated(history, records.column)
        caption += f" To the target: median over the seeds, of the first evaluated model that reached it; {evaluated}"
    caption += " Results rejected as too stale, and cancelled: per run, mean over the seeds."
    headings = [scale.heading(f"After {formats.seconds(end)}"), *goal, "Refused", "Cancelled"]
    return [Sheet("Simulated time", caption, headings, rows)]


def _measured(run: pd.DataFrame, whole: pd.DataFrame, sign: int, end: float, target: float) -> dict[str, float]:
    """Score of one run at second ``end``, what it took to the target in all its rounds, and what was lost.

    ``sign`` makes higher better.
    """
    values, goal = sign * whole["score"], sign * target
    return {
        "score": sign * metrics.score_at(sign * run["score"], run["elapsed"], end),
        "seconds": metrics.seconds_to_target(values, whole["elapsed"], goal),
        "updates": metrics.rounds_to_target(values, goal),
        "uploads": metrics.bytes_to_target(values, whole["exchanges"].cumsum(), goal),
        "refused": run["refused"].sum(min_count=1),
        "cancelled": run["cancelled"].sum(min_count=1),
    }


def _evaluated(history: pd.DataFrame, column: str) -> str:
    every = {len(run) / run[column].notna().sum() for _, run in history.groupby("key")}
    low, high = (f"{number:.3g}" for number in (min(every), max(every)))
    return f"one in {low} was evaluated." if low == high else f"one in {low} to {high} was evaluated."


def staleness(records: Records) -> Chart | None:
    """Distribution of the staleness of the results used, in updates, a line per method; None without any."""
    rows = records.clients[(records.clients["state"] == "complete") & records.clients["staleness"].notna()]
    if rows.empty:
        return None
    names, labels = method_names(list(by_method(rows))), [label for label, _ in records.methods]
    series: list[Series] = []
    edges = np.arange(0, rows["staleness"].max() + 2)
    for method, group in by_method(rows).items():
        shares, look = np.histogram(group["staleness"], edges)[0] / len(group), line_look(labels.index(method[0]))
        name = f"{names[method]}, mean {group['staleness'].mean():.3g}"
        series.append(Series(name, edges[:-1], shares, look.color, dash=look.dash, marker="o", size=3))
    x = Axis("Updates of the model while the client trained", low=-0.5, high=float(edges[-1]), whole=True)
    return Chart(x, Axis("Results", share=True), (Panel(series=tuple(series)),), 1, 3.2)


sheets.add(20, lambda source: sheet(source.records, source.table.target))
figures.add(
    190,
    lambda source: drawings(
        "staleness", "Staleness of the results", "All complete runs of a method.", staleness(source.records)
    ),
)
