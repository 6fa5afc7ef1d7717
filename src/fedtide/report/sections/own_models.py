"""Figures of what a model of its own is worth to a client: gains, and what newcomers get."""

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
_MODELS = {"served": "Model served", "finetuned": "After fine-tuning"}


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
    return lines_of_methods(records, found, Axis("Clients, % of all, by gain", low=0.0, high=100.0), y, (zero,))


def since_arrival(records: Records, clients: pd.DataFrame) -> Chart | None:
    """Mean accuracy of newcomers by rounds since arrival, up to their first absence, a panel per model; None without any."""
    rows = clients.assign(evaluation=clients.groupby("key")["round"].rank("dense"))
    rows = rows[rows["group"] != "departed"].sort_values(["key", "client", "round"], kind="stable")
    client = ["key", "client"]
    absences = (rows.groupby(client)["evaluation"].diff() > 1).groupby([rows[name] for name in client]).cumsum()
    first = rows.groupby(client)["evaluation"].transform("min")
    rows = rows.assign(x=rows["round"] - rows.groupby(client)["round"].transform("min"))[(absences == 0) & (first > 1)]
    counts = rows.groupby(["key", "x"])["client"].transform("nunique")
    rows = rows[counts >= 0.5 * counts[rows["x"] == 0].groupby(rows["key"]).first().reindex(rows["key"]).to_numpy()]
    served = rows["served_accuracy"].fillna(rows["accuracy"])
    found = {}
    for title, values in zip(_MODELS.values(), (served, rows["finetuned_accuracy"]), strict=True):
        known = rows.assign(y=values).dropna(subset=["y"])
        if len(known):
            found[title] = known.groupby(["key", *METHOD, "x"], sort=False)["y"].mean().reset_index()
    if not found:
        return None
    means = np.concatenate([part["y"].to_numpy() for part in found.values()])
    low, high = percent_limits(float(means.min()), float(means.max()))
    x = Axis("Rounds since arrival", low=0.0, whole=True)
    return lines_of_methods(records, found, x, Axis("Mean accuracy", True, low=low, high=high))


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
