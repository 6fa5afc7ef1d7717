"""Recovery after a session change: initial accuracy, time to accuracy and its cost, accumulated gain (Chang et al.).

Times and gains are relative to a reference initializer, with the same algorithm, seed and session.
"""

import math
from typing import Any

import numpy as np
import pandas as pd

from fedtide.records.frames import METHOD, Records
from fedtide.records.measures import metrics
from fedtide.records.measures.sessions import RECOVERY, recovery, sessions
from fedtide.settings.experiment import ReportSettings
from fedtide.world.presence.transitions import transition_sessions


def evaluated_sessions(records: Records, key: str, counting: str) -> list[int]:
    """Numbers (from 1) of a run's sessions that count as transitions.

    ``stored``: those that return to clients with a stored model, that is of an earlier session after the pilot (as published)
    or an earlier period of their kind, or as ``all`` if there are none or sessions are periods of the data's time that do not
    recur; ``all``: all after the pilot.
    """
    own = records.boundaries[records.boundaries["key"] == key]
    stored = counting == "stored" and (records.recurs or not records.has_periods)
    returning = own.loc[own["returning"].eq(True), "session"] if stored else ()
    count = records.history.loc[records.history["key"] == key, "session"].nunique()
    pilot = int(records.settings[key].get("scenario.pilot_sessions") or 0)
    return transition_sessions(pilot, count, set(returning))


def transitions(records: Records, settings: ReportSettings) -> pd.DataFrame:
    """One row per complete run and evaluated session.

    Columns: ``key``, ``label``, ``initializer``, ``seed``, ``session``; ``accuracy`` (mean over the window), ``start``
    (before the first round), ``dip`` (last accuracy before the change minus ``start``); ``rounds`` (T_rho), ``speed_up`` of
    the reference and ``gain`` of the reference [sum of shares]; ``latency`` [s] and ``energy`` [J] until T_rho, at the mean
    cost of the session's rounds; ``_gradient`` marks those that include the gradient rounds before the session. NaN where
    something was not recorded, there is no reference, or its session has a different number of rounds.
    """
    histories = records.history.groupby("key", sort=False)
    curves = {str(key): sessions(history, "test_accuracy") for key, history in histories}
    starts = {(row["key"], row["session"]): row["start_accuracy"] for row in records.boundaries.to_dict("records")}
    complete = records.runs[records.runs["state"] == "complete"]
    if records.history["test_accuracy"].isna().all():  # the runs have no classes, or none was evaluated
        complete = complete.iloc[:0]
    references = complete[complete["initializer"] == settings.reference].to_dict("records")
    names = {(row["label"], row["seed"]): str(row["key"]) for row in references}
    untrained = records.without_global
    rows = []
    for run in complete.to_dict("records"):
        key, base = str(run["key"]), names.get((run["label"], run["seed"]), "")
        for session in evaluated_sessions(records, key, settings.transition_counting):
            own, other = curves[key][session], curves.get(base, {}).get(session)
            start = math.nan if key in untrained else starts.get((key, session), math.nan)
            row = {name: run[name] for name in ("key", *METHOD, "seed")} | {"session": session}
            row |= {"accuracy": metrics.mean(own.score[: settings.transition_window]), "start": start}
            row |= {"dip": metrics.final(curves[key][session - 1].score) - start}
            if other is not None and len(other.score) == len(own.score) and not np.isnan(other.score).all():
                row |= recovery(own, other, settings.rho)
            rows.append(row)
    columns = ["key", *METHOD, "seed", "session", "accuracy", "start", "dip", *RECOVERY]
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
        rows.append(row | {f"{name}_median": group[name].median() for name in RECOVERY if name != "gain"})
    return pd.DataFrame(rows)
