"""The clients that a method serves worst, and in which columns of a table their rows differ from the others'."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedtide.records.files import client_scores
from fedtide.records.frames import METHOD, Method, Records
from fedtide.report import findings
from fedtide.report.formats import percent
from fedtide.report.parts import sheets
from fedtide.report.tables.evaluations import PREFIX
from fedtide.report.tables.method_table import MethodTable
from fedtide.report.tables.sheets import Sheet

_WORST, _COLUMNS = 5, 3
_ERRORS = 2  # standard errors from which a client is named
_SMALL = 0.2  # standardized mean differences below are small (Cohen 1988)


def sheet(records: Records, run_dirs: Sequence[Path], method: Method | None, table: Any = None) -> list[Sheet]:
    """The table of one method's worst clients; none where clients were not scored on samples of their own, or are much alike.

    Accuracies are over the last evaluation of each session in which a client is present, and the seeds. Clients are ordered by
    the number of standard errors, of a binomial share of their rows, below all others, at least two, so that few rows are no
    reason.

    Args:
        run_dirs: those of the records. table: settings of the data ``table``, if it is one with clients.
    """
    scores = _scores(records, run_dirs, method) if method is not None else pd.DataFrame()
    if scores.empty or scores["samples"].sum() == 0:
        return []
    seeds = scores["key"].nunique()
    found = scores.assign(correct=scores["accuracy"] * scores["samples"]).groupby("name")[["correct", "samples"]].sum()
    total = found.sum()
    found["rest"] = (total["correct"] - found["correct"]) / (total["samples"] - found["samples"])
    found["accuracy"], rows = found["correct"] / found["samples"], found["samples"] / seeds
    found["errors"] = (found["rest"] - found["accuracy"]) / np.sqrt(found["rest"] * (1 - found["rest"]) / rows)
    worst = found[np.isfinite(found["errors"]) & (found["errors"] >= _ERRORS)].nlargest(_WORST, "errors")
    if worst.empty:
        return []
    differs = columns_that_differ(table, worst.index.to_list()) if table is not None else {}
    lines = [
        (
            (str(name), differs.get(str(name), "")),
            [percent(row["accuracy"]), percent(row["rest"]), f"{row['samples'] / seeds:.0f}", f"{row['errors']:.1f}"],
        )
        for name, row in worst.iterrows()
    ]
    how = (
        " Columns: difference of means in standard deviations, of the rows of the client and of all others."
        if differs
        else ""
    )
    return [
        Sheet(
            f"Clients with the lowest accuracy, {findings.method(method)}" if method else "",
            "On their own held-out rows, at the last evaluation of each session; ordered by standard errors below the others' "
            f"accuracy, at least two.{how}",
            ["Accuracy, %", "Others, %", "Rows", "Standard errors"],
            lines,
            ("Client", "Differs most in" if differs else ""),
        )
    ]


def _best(table: MethodTable) -> Method | None:
    leaders = (table.leader(column) for column in table.columns if column.headline)
    return next(filter(None, leaders), None)


def _scores(records: Records, run_dirs: Sequence[Path], method: Method | None) -> pd.DataFrame:
    """Rows of the clients' scores: ``key``, ``name``, ``accuracy`` and ``samples``."""
    history = records.history[records.history["state"] == "complete"].reindex(
        columns=["key", *METHOD, "session", "round", f"{PREFIX}mean"]
    )
    mine = history[(history[METHOD] == list(method or ())).all(axis=1)].dropna(subset=[f"{PREFIX}mean"])
    found, paths = [], {path.name: path for path in run_dirs}
    for key, number in mine.groupby(["key", "session"], sort=False).tail(1)[["key", "round"]].to_numpy():
        frame = pd.read_parquet(paths[str(key)] / client_scores.file_name(int(number)))
        frame = frame[frame["group"] != "departed"].dropna(subset=["accuracy", "samples"])
        names = frame["name"] if "name" in frame else frame["client"]
        found.append(pd.DataFrame({"key": key, "name": names.astype(str), **_numbers(frame)}))
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame()


def _numbers(frame: pd.DataFrame) -> dict[str, pd.Series[Any]]:
    return {name: frame[name].astype(float) for name in ("accuracy", "samples")}


def columns_that_differ(table: Any, names: list[str]) -> dict[str, str]:
    """For each client, the features of a table in which its rows differ most from all others; at most three, in words.

    A difference of means over the root of the mean of both variances, of numbers or of the indicator of a category; those
    below 0.2 are left out.
    """
    from fedtide.world.data.table import (
        rows_and_clients,  # with the extra `data`, which a report of other data does without
    )

    if (read := rows_and_clients(table)) is None:
        return {}
    frame, number, known = read
    used = {*table.targets, table.client, table.time}
    features = pd.DataFrame(
        {name: values for column in frame.columns if column not in used for name, values in _features(frame[column])}
    )
    found = {}
    for name in (name for name in names if name in known):
        own = number == known.index(name)
        inside, outside = features[own], features[~own]
        gap = (inside.mean() - outside.mean()) / np.sqrt((inside.var(ddof=0) + outside.var(ddof=0)) / 2)
        gap = gap[np.isfinite(gap) & (gap.abs() >= _SMALL)]
        largest = gap.loc[gap.abs().sort_values(ascending=False, kind="stable").index[:_COLUMNS]]
        found[name] = ", ".join(f"{column} {value:+.1f}" for column, value in largest.items()).replace(
            "-", "\N{MINUS SIGN}"
        )
    return found


_MOST_CATEGORIES = 20


def _features(column: pd.Series[Any]) -> list[tuple[str, pd.Series[Any]]]:
    """Numbers as they are, else an indicator of each frequent category."""
    if pd.api.types.is_numeric_dtype(column):
        return [(str(column.name), column.astype(float))]
    frequent = column.value_counts().index[:_MOST_CATEGORIES]
    return [(f"{column.name} is {value}", (column == value).astype(float)) for value in frequent]


sheets.add(
    30,
    lambda source: sheet(source.records, source.run_dirs, _best(source.table), source.contents.table),
)
