"""The table of accuracy, stability and speed of learning, for runs of one session (Zhou et al. 2025, Tables 1 to 6)."""

import math

import numpy as np
import pandas as pd

from fedtide.records.frames import Records, by_method
from fedtide.records.measures import metrics
from fedtide.report import formats
from fedtide.report.formats import Scale
from fedtide.report.parts import sheets
from fedtide.report.tables.method_table import Sheet


def sheet(records: Records, last: int, target: float, baseline: str) -> list[Sheet]:
    """The table of complete runs; none if sessions change, nothing was evaluated, or there is no target.

    ``baseline`` is the label of the algorithm to compare with, with the same initializer and seed.
    """
    history = records.history[records.history["state"] == "complete"]
    if math.isnan(target) or history["session"].nunique() != 1:
        return []
    score, scale = records.score, Scale(records.score.share)
    per_run = {str(key): run[records.column] for key, run in history.groupby("key", sort=False)}
    per_run = {key: curve for key, curve in per_run.items() if curve.notna().any()}  # nobody may train the model scored
    runs = records.runs[records.runs["key"].isin(list(per_run))]
    curves = [per_run[key] for key in runs["key"]]
    every = {str(key): run[records.column] for key, run in records.whole.groupby("key", sort=False)}
    whole = [every[key] for key in runs["key"]]
    spent = [metrics.rounds_to_target(score.sign * curve, score.sign * target) for curve in whole]
    runs = runs.assign(
        mean=[curve.tail(last).mean() for curve in curves],
        spread=[curve.tail(last).std(ddof=0) for curve in curves],
        reached=np.isfinite(spent),
        rounds=[min(rounds, len(curve)) for rounds, curve in zip(spent, whole, strict=True)],
    )
    bases = runs.loc[runs["label"] == baseline, ["initializer", "seed", "mean", "rounds"]]
    runs = runs.merge(bases, on=["initializer", "seed"], how="left", suffixes=("", "_of_baseline"))
    goal = scale.goal(target)
    return [
        Sheet(
            f"{score.title}, stability and speed of learning",
            f"Of {records.models()}. Mean \N{PLUS-MINUS SIGN} population standard deviation over the last {last} rounds of a "
            f"run, both averaged over the seeds. Rounds to {goal}, and rounds of {baseline} divided by them: medians over the "
            "seeds. A run that does not reach it counts with all its rounds and is marked with >.",
            [scale.heading(f"Last {last} rounds"), f"Minus {baseline}{scale.gap}", f"Rounds to {goal}", "Speed-up"],
            [(method, _cells(own, score.share)) for method, own in by_method(runs).items()],
        )
    ]


def _cells(runs: pd.DataFrame, share: bool) -> list[str]:
    """Cells of a method from its runs, in percent or as they are."""
    factor, digits = (100, 2) if share else (1, 4)
    mean, spread = factor * runs["mean"].mean(), factor * runs["spread"].mean()
    gap = factor * (runs["mean"] - runs["mean_of_baseline"]).mean()
    rounds, reached = metrics.median_spent(runs["rounds"], runs["reached"])
    return [
        formats.NOTHING if math.isnan(mean) else f"{mean:.{digits}f} \N{PLUS-MINUS SIGN} {spread:.{digits}f}",
        formats.NOTHING if math.isnan(gap) else f"{gap:+.{digits}f}".replace("-", "\N{MINUS SIGN}"),
        f"{'' if reached else '>'}{rounds:g}",
        formats.times((runs["rounds_of_baseline"] / runs["rounds"]).median()),
    ]


sheets.add(
    10,
    lambda source: sheet(
        source.records, source.table.settings.last, source.table.target, source.table.settings.baseline
    ),
)
