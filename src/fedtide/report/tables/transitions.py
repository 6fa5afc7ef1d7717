"""Recovery after a session change: initial accuracy, time to accuracy and its cost, accumulated gain (Chang et al.).

Times and gains are relative to a reference initializer, with the same algorithm, seed and session.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from fedtide.core.array_types import Floats
from fedtide.records.frames import METHOD, Records
from fedtide.records.measures import metrics
from fedtide.world.timeline import transition_sessions


@dataclass(frozen=True)
class Rules:
    """How session changes are measured.

    Attributes:
        window: number of rounds after a change to average.
        counting: which sessions are evaluated. ``stored``: those that return to clients with a stored model, that is of an
            earlier session after the pilot (as published) or an earlier period of their kind, or as ``all`` if there are none
            or sessions are periods of the data's time that do not recur; ``all``: all after the pilot.
        reference: label of the initializer to compare recovery with.
        rho: share of the reference's best accuracy that is considered recovered.
    """

    window: int = 10
    counting: Literal["stored", "all"] = "stored"
    reference: str = "dynamic"
    rho: float = 0.95

    def sessions(self, records: Records, key: str) -> list[int]:
        """Numbers (from 1) of a run's evaluated sessions."""
        own = records.boundaries[records.boundaries["key"] == key]
        stored = self.counting == "stored" and (records.recurs or not records.has_periods)
        returning = own.loc[own["returning"].eq(True), "session"] if stored else ()
        count = records.history.loc[records.history["key"] == key, "session"].nunique()
        pilot = int(records.settings[key].get("scenario.pilot_sessions") or 0)
        return transition_sessions(pilot, count, set(returning))


def time_to_accuracy(accuracy: ArrayLike, reference: ArrayLike, rho: float) -> float:
    """T_rho: first round of a session, from 1, with at least ``rho`` times the best accuracy of ``reference``; or inf."""
    return metrics.rounds_to_target(accuracy, rho * metrics.best(reference))


def speed_up(rounds: float, reference: float) -> float:
    """Speed-up of the reference: inf if only the other does not reach the target, NaN if the reference does not."""
    return math.nan if math.isinf(reference) else rounds / reference


def gain(accuracy: ArrayLike, reference: ArrayLike) -> float:
    """Accuracy of ``reference`` minus ``accuracy``, summed over the rounds in which both were evaluated."""
    return float(np.nansum(np.asarray(reference, dtype=np.float64) - np.asarray(accuracy, dtype=np.float64)))


def transitions(records: Records, rules: Rules) -> pd.DataFrame:
    """One row per complete run and evaluated session.

    Columns: ``key``, ``label``, ``initializer``, ``seed``, ``session``; ``accuracy`` (mean over the window), ``start``
    (before the first round), ``dip`` (last accuracy before the change minus ``start``); ``rounds`` (T_rho), ``speed_up`` of
    the reference and ``gain`` of the reference [sum of shares]; ``latency`` [s] and ``energy`` [J] until T_rho, at the mean
    cost of the session's rounds; ``_gradient`` marks those that include the gradient rounds before the session. NaN where
    something was not recorded, there is no reference, or its session has a different number of rounds.
    """
    curves = {(str(key), session): curve for key, session, curve in _curves(records)}
    starts = {(row["key"], row["session"]): row["start_accuracy"] for row in records.boundaries.to_dict("records")}
    complete = records.runs[records.runs["state"] == "complete"]
    if records.history["test_accuracy"].isna().all():  # the runs have no classes, or none was evaluated
        complete = complete.iloc[:0]
    references = complete[complete["initializer"] == rules.reference].to_dict("records")
    names = {(row["label"], row["seed"]): str(row["key"]) for row in references}
    untrained = records.without_global
    rows = []
    for run in complete.to_dict("records"):
        key, base = str(run["key"]), names.get((run["label"], run["seed"]), "")
        for session in rules.sessions(records, key):
            curve, before = curves[key, session], curves[key, session - 1]
            start = math.nan if key in untrained else starts.get((key, session), math.nan)
            row = {name: run[name] for name in ("key", *METHOD, "seed")} | {"session": session}
            row |= {"accuracy": metrics.mean(curve.accuracy[: rules.window]), "start": start}
            row |= {"dip": metrics.final(before.accuracy) - start}
            rows.append(row | _recovery(curve, curves.get((base, session)), rules.rho))
    columns = ["key", *METHOD, "seed", "session", "accuracy", "start", "dip", *_RECOVERY]
    return pd.DataFrame(rows, columns=columns)


def per_session(frame: pd.DataFrame) -> pd.DataFrame:
    """:func:`transitions` over the seeds: one row per method and session.

    Mean and sample standard deviation (divisor n - 1); medians of columns that may be infinite.
    """
    rows = []
    for names, group in frame.groupby([*METHOD, "session"], sort=False):
        row: dict[str, Any] = dict(zip([*METHOD, "session"], names, strict=True)) | {"seeds": len(group)}
        for name in ("accuracy", "start", "dip", "gain"):
            row[f"{name}_mean"], row[f"{name}_std"] = metrics.mean_std(group[name])
        rows.append(row | {f"{name}_median": group[name].median() for name in _RECOVERY if name != "gain"})
    return pd.DataFrame(rows)


_RECOVERY = (
    "rounds", "rounds_gradient", "speed_up", "speed_up_gradient", "gain", "latency", "latency_gradient", "energy",
    "energy_gradient",
)  # fmt: skip


@dataclass(frozen=True)
class _Curve:
    """One session of one run: accuracy [T] per round, gradient rounds V before it, seconds and joules of a round."""

    accuracy: Floats
    gradient_rounds: float
    latency: float
    energy: float


def _curves(records: Records) -> Iterator[tuple[str, int, _Curve]]:
    for key, history in records.history.groupby("key", sort=False):
        total = 0.0
        for session, rounds in history.groupby("session"):
            before, total = total, rounds["gradient_rounds"].max()
            done = len(rounds) + total - before
            costs = [rounds[name].sum(min_count=len(rounds)) / done for name in ("latency", "energy")]
            accuracy = rounds["test_accuracy"].to_numpy(dtype=np.float64)
            yield str(key), int(str(session)), _Curve(accuracy, total - before, *costs)


def _recovery(curve: _Curve, reference: _Curve | None, rho: float) -> dict[str, float]:
    if reference is None or len(reference.accuracy) != len(curve.accuracy) or np.isnan(reference.accuracy).all():
        return dict.fromkeys(_RECOVERY, math.nan)
    own, other = (time_to_accuracy(each.accuracy, reference.accuracy, rho) for each in (curve, reference))
    row = {"gain": gain(curve.accuracy, reference.accuracy)}
    for ending, extra, base in (("", 0.0, 0.0), ("_gradient", curve.gradient_rounds, reference.gradient_rounds)):
        row[f"rounds{ending}"] = own + extra
        row[f"speed_up{ending}"] = speed_up(own + extra, other + base)
        row[f"latency{ending}"] = (own + extra) * curve.latency
        row[f"energy{ending}"] = (own + extra) * curve.energy
    return row
