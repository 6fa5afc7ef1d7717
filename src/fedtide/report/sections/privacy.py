"""What clients spend of their privacy: a table, and a figure over the rounds that they are present."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from fedtide.records.frames import Records, by_method
from fedtide.report.charts.chart import Axis, Chart, Panel, Series, floats
from fedtide.report.charts.methods import method_names
from fedtide.report.charts.pictures import drawings
from fedtide.report.charts.style import PALETTE
from fedtide.report.formats import NOTHING
from fedtide.report.parts import figures, sheets
from fedtide.report.tables.sheets import Sheet

_FIGURE = (
    "Epsilon that a client has spent by the end of the run, over the rounds in which it is present. A point per client; one "
    "run of each method."
)
_CAPTION = (
    "Epsilon of the clients, at this delta; largest: what the run guarantees. Means over the clients of a group and the runs "
    "of a method. Searches of settings are not included."
)
_GROUPS = ("All the time", "Arrived later", "Left earlier")
_LOOKS = dict(zip(_GROUPS, ((PALETTE[0], "o"), (PALETTE[1], "s"), (PALETTE[2], "^")), strict=True))


def sheets_of(records: Records) -> list[Sheet]:
    """The table; none without a run with noise."""
    rows = [(method, _cells(own)) for method, own in by_method(_grouped(records)).items()]
    headings = ["Delta", "Largest", "Mean", *_GROUPS]
    return [Sheet("Privacy: epsilon of the clients", _CAPTION, headings, rows)] if rows else []


def chart(records: Records) -> Chart | None:
    """Epsilon over rounds present, by group of clients, a panel per method; None without a run with noise."""
    clients = _grouped(records)
    clients = clients[np.isfinite(clients["epsilon"])]
    if clients.empty:
        return None
    groups = by_method(clients)
    names = method_names(list(groups))
    panels = tuple(
        Panel(names[method] if len(groups) > 1 else "", tuple(_points(rows[rows["key"] == rows["key"].iloc[0]])))
        for method, rows in groups.items()
    )
    columns = min(3, len(panels))
    height = 3.2 if len(panels) == 1 else 0.6 + 2.2 * -(-len(panels) // columns)
    return Chart(Axis("Rounds present", low=0.0, whole=True), Axis("Epsilon", low=0.0), panels, columns, height)


def _grouped(records: Records) -> pd.DataFrame:
    """Clients of the complete runs with their ``group``: a client that arrived later and left earlier has arrived later."""
    clients = records.privacy[records.privacy["state"] == "complete"]
    last = clients.groupby("key")["departure"].transform("max")
    names = np.where(clients["arrival"] > 1, _GROUPS[1], np.where(clients["departure"] < last, _GROUPS[2], _GROUPS[0]))
    return clients.assign(group=names)


def _points(rows: pd.DataFrame) -> Iterator[Series]:
    for group, (color, marker) in _LOOKS.items():
        own = rows[rows["group"] == group].sort_values(["present", "epsilon"], kind="stable")
        if len(own):
            yield Series(group, floats(own["present"]), floats(own["epsilon"]), color, marker=marker, width=0.0)


def _cells(clients: pd.DataFrame) -> list[str]:
    means = clients.groupby("group")["epsilon"].mean().reindex(_GROUPS)
    values = [clients["epsilon"].max(), clients["epsilon"].mean(), *means]
    return [f"{clients['delta'].max():.2g}", *(NOTHING if np.isnan(value) else f"{value:.3g}" for value in values)]


figures.add(110, lambda source: drawings("privacy", "Privacy spent by rounds present", _FIGURE, chart(source.records)))
sheets.add(70, lambda source: sheets_of(source.records))
