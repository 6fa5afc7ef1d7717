"""Accuracy around drifts."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedtide.core.array_types import Floats
from fedtide.records import drifts
from fedtide.records.frames import Method, by_method
from fedtide.report.charts.chart import Axis, Chart, Panel, Series, score_axis
from fedtide.report.charts.figures import method_names
from fedtide.report.charts.style import line_look
from fedtide.settings.scores import ACCURACY

CAPTION = (
    "Rounds counted from the first one in which concepts change, up to the next drift. Lines: mean over the drifts and the "
    "complete runs of a method; shading: range over them."
)


def around_drifts(methods: list[Method], models: dict[str, pd.DataFrame]) -> Chart | None:
    """Accuracy aligned at the drifts, a panel per model; None unless a run has several.

    Args:
        methods: of the report, in order.
        models: rounds of runs by model, with columns ``accuracy`` and ``concepts_changed``.
    """
    runs = [run for rounds in models.values() for _, run in rounds.groupby("key", sort=False)]
    found = [drifts.events(run["accuracy"], run[drifts.COLUMN]) for run in runs]
    if max(map(len, found), default=0) < 2:
        return None
    after = max(drifts.DIP, min(event.end - event.start for events in found for event in events))
    names, panels, values = method_names(methods), list[Panel](), list[Floats]()
    for model, rounds in models.items():
        series = []
        for method, group in by_method(rounds).items():
            rows = [
                drifts.aligned(run["accuracy"], run[drifts.COLUMN], after)
                for _, run in group.groupby("key", sort=False)
            ]
            table = np.concatenate(rows)
            known = np.flatnonzero(~np.isnan(table).all(0))
            if len(known):
                low, mean, high = (each(table[:, known], axis=0) for each in (np.nanmin, np.nanmean, np.nanmax))
                look = line_look(methods.index(method))
                x = (known - drifts.BEFORE).astype(np.float64)
                series.append(Series(names[method], x, mean, look.colour, low, high, dash=look.dash, marker="o"))
                values += [low, high]
        panels.append(Panel(model if len(models) > 1 else "", tuple(series), drifts=(-0.5,)))
    spread = np.concatenate(values)
    y = score_axis("Test accuracy", ACCURACY, float(spread.min()), float(spread.max()))
    x_axis = Axis("Rounds since a drift", low=-drifts.BEFORE - 0.5, high=after - 0.5, whole=True)
    return Chart(x_axis, y, tuple(panels), 1, 3.2 if len(panels) == 1 else 0.6 + 2.4 * len(panels))
