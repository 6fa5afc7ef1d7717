"""Figures of what a model of its own is worth to a client: gains, and what newcomers and returners get."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedtide.records.files.client_scores import GAINS
from fedtide.records.frames import METHOD, Records
from fedtide.report.charts.chart import Axis, Chart, Series, floats
from fedtide.report.charts.methods import lines_of_methods
from fedtide.report.charts.pictures import drawings
from fedtide.report.charts.style import GRAY, percent_limits
from fedtide.report.parts import figures

_GAINS = (
    "Accuracy of the model that a client is served, or has after its local steps, minus that of the global one, on the same "
    "samples; clients in ascending order, at the last evaluation. Lines: mean of the complete runs of a method; shading: range "
    "over its seeds."
)
_ARRIVAL = (
    "Mean over clients that arrive after the first evaluation, each with the model that it is served (the global one where a "
    "method has no others); rounds from its first evaluation on, as long as half of these clients are present. Lines: mean of "
    "the complete runs of a method; shading: range over its seeds."
)
_ABSENCE = (
    "Mean over the returns of clients, at their first evaluation; rounds of absence are counted between evaluations. Points: "
    "mean of the complete runs of a method; bars: range over its seeds."
)
_MODELS = {"served": "Model served", "finetuned": "After fine-tuning"}
_BINS = 8
"""Most lengths of absence shown one by one."""


def gains(records: Records, clients: pd.DataFrame) -> Chart | None:
    """Gains of the clients, sorted; a panel for models served and for local steps. None if no run has either."""
    places = np.linspace(0, 100, 101)
    last = clients[clients["round"] == clients.groupby("key")["round"].transform("max")]
    found: dict[str, pd.DataFrame] = {}
    for model, title in _MODELS.items():
        rows = last.dropna(subset=[GAINS[model][0]])
        if len(rows):
            per_run = rows.groupby(["key", *METHOD], sort=False)[GAINS[model][0]]
            wide = per_run.apply(lambda values: pd.Series(np.percentile(values, places), index=places))
            found[title] = wide.rename_axis(["key", *METHOD, "x"]).rename("y").reset_index()
    if not found:
        return None
    values = np.concatenate([rows["y"].to_numpy() for rows in found.values()])
    zero = Series("none", floats([0, 100]), floats([0, 0]), GRAY, dash=1, width=0.8, listed=False)
    y = Axis("Gain in accuracy", True, low=float(values.min()) - 0.02, high=float(values.max()) + 0.02)
    return lines_of_methods(records, found, Axis("Clients, % of all, by gain", low=0.0, high=100.0), y, first=zero)


def since_arrival(records: Records, clients: pd.DataFrame) -> Chart | None:
    """Accuracy of newcomers by rounds since they arrived; None without any."""
    stays = _stays(clients)
    rows = stays[(stays["stay"] == 0) & (stays["began"] > stays.groupby("key")["round"].transform("min"))]
    rows = rows.assign(x=rows["round"] - rows["began"])
    counts = rows.groupby(["key", "x"])["client"].transform("nunique")
    rows = rows[counts >= 0.5 * counts[rows["x"] == 0].groupby(rows["key"]).first().reindex(rows["key"]).to_numpy()]
    return _accuracies(records, rows, Axis("Rounds since arrival", low=0.0, whole=True))


def by_absence(records: Records, clients: pd.DataFrame) -> Chart | None:
    """Accuracy of clients that have just returned by the length of their absence; None without any."""
    stays = _stays(clients)
    rows = stays[(stays["stay"] > 0) & (stays["round"] == stays["began"])]
    if rows["absent"].nunique() > _BINS:
        middle = rows.groupby(pd.qcut(rows["absent"], _BINS, duplicates="drop"), observed=True)["absent"]
        rows = rows.assign(x=middle.transform("median"))
    else:
        rows = rows.assign(x=rows["absent"])
    return _accuracies(records, rows, Axis("Rounds of absence", low=0.0, whole=True), points=True)


def _stays(clients: pd.DataFrame) -> pd.DataFrame:
    """Evaluations of clients present, with the number of the stay (from 0), its first round, and the absence before it."""
    rows = clients[clients["group"] != "departed"].sort_values(["key", "client", "round"], kind="stable")
    evaluated = clients[["key", "round"]].drop_duplicates().sort_values(["key", "round"])
    before = evaluated.assign(before=evaluated.groupby("key")["round"].shift())
    rows = rows.merge(before, on=["key", "round"], how="left")
    absent = (rows["before"] - rows.groupby(["key", "client"])["round"].shift()).fillna(0)
    rows = rows.assign(absent=absent, new=absent > 0)
    rows = rows.assign(stay=rows.groupby(["key", "client"])["new"].cumsum())
    began = rows.groupby(["key", "client", "stay"])["round"].transform("min")
    served = rows["served_accuracy"].fillna(rows["accuracy"])
    return rows.assign(began=began, served=served, finetuned=rows["finetuned_accuracy"])


def _accuracies(records: Records, rows: pd.DataFrame, x: Axis, points: bool = False) -> Chart | None:
    """Mean accuracy over the clients of a run by ``x``, a panel per model."""
    found = {}
    for model, title in _MODELS.items():
        known = rows.dropna(subset=[model])
        if len(known):
            found[title] = known.groupby(["key", *METHOD, "x"], sort=False)[model].mean().rename("y").reset_index()
    if not found:
        return None
    values = np.concatenate([part["y"].to_numpy() for part in found.values()])
    low, high = percent_limits(float(values.min()), float(values.max()))
    return lines_of_methods(records, found, x, Axis("Mean accuracy", True, low=low, high=high), points)


figures.add(
    70,
    lambda source: drawings(
        "gains", "Gain of the clients' own models", _GAINS, gains(source.records, source.evaluations)
    ),
)
figures.add(
    80,
    lambda source: drawings(
        "since_arrival", "Newcomers since their arrival", _ARRIVAL, since_arrival(source.records, source.evaluations)
    ),
)
figures.add(
    90,
    lambda source: drawings(
        "by_absence", "Returners by length of absence", _ABSENCE, by_absence(source.records, source.evaluations)
    ),
)
