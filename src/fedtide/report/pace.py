"""The table of accuracy, stability and speed of learning, for runs of one session."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from fedtide.report import formats, speed
from fedtide.report.records import Method, Records
from fedtide.report.sheets import Sheet
from fedtide.report.speed import RoundsToTarget


@dataclass(frozen=True)
class Pace:
    """How the speed of learning is measured.

    Attributes:
        target: accuracy to reach in this and the main table, a share; None for the default of the latter.
        baseline: label of the algorithm to compare with.
    """

    target: float | None = None
    baseline: str = "fedavg"


@dataclass(frozen=True)
class _Measured:
    """One run: mean and spread of its last rounds, and when it reached the target."""

    mean: float
    spread: float
    target: RoundsToTarget


def sheet(records: Records, last: int, target: float, baseline: str) -> list[Sheet]:
    """The table; none if sessions change, nothing was evaluated, or there is no target.

    Args:
        records: all runs; only complete ones are used.
        last: number of last rounds.
        target: accuracy to reach, a share.
        baseline: label of the algorithm to compare with, with the same initialiser and seed.
    """
    history = records.history[records.history["state"] == "complete"]
    if math.isnan(target) or history["session"].nunique() != 1:
        return []
    runs = {
        str(key): _Measured(*speed.last_rounds(accuracy, last), speed.rounds_to_target(accuracy, target))
        for key, accuracy in history.groupby("key", sort=False)["test_accuracy"]
    }
    places = records.runs[records.runs["key"].isin(list(runs))].to_dict("records")
    bases = {(run["initialiser"], run["seed"]): runs[run["key"]] for run in places if run["label"] == baseline}
    rows = []
    for method in records.methods:
        own = [run for run in places if (run["label"], run["initialiser"]) == method]
        pairs = [(runs[run["key"]], bases.get((run["initialiser"], run["seed"]))) for run in own]
        if pairs:
            rows.append((method, _cells(pairs)))
    return [_sheet(rows, last, target, baseline)]


def _sheet(rows: list[tuple[Method, list[str]]], last: int, target: float, baseline: str) -> Sheet:
    goal = f"{100 * target:.4g} %"
    return Sheet(
        "Accuracy, stability and speed of learning",
        f"Mean \N{PLUS-MINUS SIGN} population standard deviation over the last {last} rounds of a run, both averaged over the "
        f"seeds. Rounds to {goal}, and rounds of {baseline} divided by them: medians over the seeds. A run that never gets "
        "there counts with all its rounds and is marked with >.",
        [f"Last {last} rounds, %", f"Minus {baseline}, points", f"Rounds to {goal}", "Speed-up"],
        rows,
    )


def _cells(pairs: Sequence[tuple[_Measured, _Measured | None]]) -> list[str]:
    """Cells of a method, from its runs, each paired with the baseline's run if there is one."""
    mean, spread = (
        100 * float(np.mean(values)) for values in zip(*((own.mean, own.spread) for own, _ in pairs), strict=True)
    )
    gaps = [100 * (own.mean - base.mean) for own, base in pairs if base]
    ups = [own.target.speed_up(base.target) for own, base in pairs if base]
    targets = sorted((own.target for own, _ in pairs), key=lambda found: (not found.reached, found.rounds))
    return [
        formats.NOTHING if math.isnan(mean) else f"{mean:.2f} \N{PLUS-MINUS SIGN} {spread:.2f}",
        f"{np.mean(gaps):+.2f}".replace("-", "\N{MINUS SIGN}") if gaps else formats.NOTHING,
        str(targets[(len(targets) - 1) // 2]),
        formats.times(median(ups)) if ups else formats.NOTHING,
    ]
