"""The clients that the best method serves worst."""

import numpy as np
import pandas as pd

from fedtide.records.files import client_scores
from fedtide.records.frames import METHOD, Method
from fedtide.report import findings
from fedtide.report.formats import percent
from fedtide.report.parts import Source, sheets
from fedtide.report.tables.evaluations import PREFIX
from fedtide.report.tables.method_table import Sheet

_MOST = 5
_ERRORS = 2  # standard errors from which a client is named


def sheet(source: Source) -> list[Sheet]:
    """The table; none where clients were not scored on samples of their own, or none is far below the others.

    Accuracies are over the last evaluation of each session in which a client is present, and the seeds. Clients are ordered by
    how many standard errors, of a binomial share of their rows, they are below all others, so that few rows are no reason.
    """
    leaders = (source.table.leader(column) for column in source.table.columns if column.headline)
    method = next(filter(None, leaders), None)
    scores = _scores(source, method) if method is not None else pd.DataFrame()
    if method is None or scores.empty or scores["samples"].sum() == 0:
        return []
    seeds = scores["key"].nunique()
    sums = scores.assign(correct=scores["accuracy"] * scores["samples"]).groupby("name")[["correct", "samples"]].sum()
    total = sums.sum()
    others = (total["correct"] - sums["correct"]) / (total["samples"] - sums["samples"])
    accuracy, rows = sums["correct"] / sums["samples"], sums["samples"] / seeds
    errors = (others - accuracy) / np.sqrt(others * (1 - others) / rows)
    worst = errors[np.isfinite(errors) & (errors >= _ERRORS)].nlargest(_MOST)
    if worst.empty:
        return []
    lines = [
        ((str(name),), [percent(accuracy[name]), percent(others[name]), f"{rows[name]:.0f}", f"{errors[name]:.1f}"])
        for name in worst.index
    ]
    return [
        Sheet(
            f"Clients with the lowest accuracy, {findings.method(method)}",
            "On their own held-out rows, at the last evaluation of each session; ordered by standard errors below the others' "
            "accuracy, at least two.",
            ["Accuracy, %", "Others, %", "Rows", "Standard errors"],
            lines,
            ("Client",),
        )
    ]


def _scores(source: Source, method: Method) -> pd.DataFrame:
    """Rows of the clients' scores: ``key``, ``name``, ``accuracy`` and ``samples``."""
    history = source.records.history
    history = history[history["state"] == "complete"].reindex(
        columns=["key", *METHOD, "session", "round", f"{PREFIX}mean"]
    )
    mine = history[(history[METHOD] == list(method)).all(axis=1)].dropna(subset=[f"{PREFIX}mean"])
    frames, paths = [], {path.name: path for path in source.run_dirs}
    for key, number in mine.groupby(["key", "session"], sort=False).tail(1)[["key", "round"]].to_numpy():
        frame = pd.read_parquet(paths[str(key)] / client_scores.file_name(int(number)))
        frame = frame[frame["group"] != "departed"].dropna(subset=["accuracy", "samples"])
        names = frame["name"] if "name" in frame else frame["client"]
        numbers = {column: frame[column].astype(float) for column in ("accuracy", "samples")}
        frames.append(pd.DataFrame({"key": key, "name": names.astype(str), **numbers}))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


sheets.add(30, sheet)
