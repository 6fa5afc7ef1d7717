"""The table of accuracy, stability and speed of learning, for runs of one session."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from fedtide.records.frames import Method, Records
from fedtide.report import formats
from fedtide.report.formats import Scale
from fedtide.report.parts import sheets
from fedtide.report.tables import speed
from fedtide.report.tables.sheets import Sheet
from fedtide.report.tables.speed import RoundsToTarget
from fedtide.settings.scores import Score


@dataclass(frozen=True)
class _Measured:
    """One run: mean and spread of its last rounds, and when it reached the target."""

    mean: float
    spread: float
    target: RoundsToTarget


def sheet(records: Records, last: int, target: float, baseline: str) -> list[Sheet]:
    """The table of complete runs; none if sessions change, nothing was evaluated, or there is no target.

    ``baseline`` is the label of the algorithm to compare with, with the same initializer and seed.
    """
    history = records.history[records.history["state"] == "complete"]
    if math.isnan(target) or history["session"].nunique() != 1:
        return []
    sign = records.score.sign
    runs = {
        str(key): _Measured(
            *speed.last_rounds(values, last),
            speed.rounds_to_target(sign * values, sign * target),
        )
        for key, values in history.groupby("key", sort=False)[records.column]
    }
    places = records.runs[records.runs["key"].isin(list(runs))].to_dict("records")
    bases = {(run["initializer"], run["seed"]): runs[run["key"]] for run in places if run["label"] == baseline}
    rows = []
    for method in records.methods:
        own = [run for run in places if (run["label"], run["initializer"]) == method]
        pairs = [(runs[run["key"]], bases.get((run["initializer"], run["seed"]))) for run in own]
        if pairs:
            rows.append((method, _cells(pairs, 100 if records.score.share else 1)))
    return [_sheet(rows, records.score, last, target, baseline)]


def _sheet(rows: list[tuple[Method, list[str]]], score: Score, last: int, target: float, baseline: str) -> Sheet:
    scale = Scale(score.share)
    goal = scale.goal(target)
    return Sheet(
        f"{score.title}, stability and speed of learning",
        f"Mean \N{PLUS-MINUS SIGN} population standard deviation over the last {last} rounds of a run, both averaged over the "
        f"seeds. Rounds to {goal}, and rounds of {baseline} divided by them: medians over the seeds. A run that does not "
        "reach it counts with all its rounds and is marked with >.",
        [scale.heading(f"Last {last} rounds"), f"Minus {baseline}{scale.gap}", f"Rounds to {goal}", "Speed-up"],
        rows,
    )


def _cells(pairs: Sequence[tuple[_Measured, _Measured | None]], factor: int) -> list[str]:
    """Cells of a method, from its runs, each paired with the baseline's run if there is one; scores times ``factor``."""
    digits = 2 if factor > 1 else 4
    mean = factor * float(np.mean([own.mean for own, _ in pairs]))
    spread = factor * float(np.mean([own.spread for own, _ in pairs]))
    gaps = [factor * (own.mean - base.mean) for own, base in pairs if base]
    ups = [own.target.speed_up(base.target) for own, base in pairs if base]
    targets = sorted((own.target for own, _ in pairs), key=lambda found: (not found.reached, found.rounds))
    return [
        formats.NOTHING if math.isnan(mean) else f"{mean:.{digits}f} \N{PLUS-MINUS SIGN} {spread:.{digits}f}",
        f"{np.mean(gaps):+.{digits}f}".replace("-", "\N{MINUS SIGN}") if gaps else formats.NOTHING,
        str(targets[(len(targets) - 1) // 2]),
        formats.times(median(ups)) if ups else formats.NOTHING,
    ]


sheets.add(
    10,
    lambda source: sheet(source.records, source.contents.last, source.table.target, source.contents.speed.baseline),
)
