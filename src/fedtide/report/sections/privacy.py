"""The table of what clients spend of their privacy."""

import numpy as np
import pandas as pd

from fedtide.records.frames import Records, by_method
from fedtide.report.formats import NOTHING
from fedtide.report.parts import sheets
from fedtide.report.tables.method_table import Sheet

_CAPTION = (
    "Epsilon of the clients, at this delta; largest: what the run guarantees. Means over the clients of a group and the runs "
    "of a method. Searches of settings are not included."
)
_GROUPS = ("All the time", "Arrived later", "Left earlier")


def sheets_of(records: Records) -> list[Sheet]:
    """The table; none without a run with noise."""
    rows = [(method, _cells(own)) for method, own in by_method(_grouped(records)).items()]
    headings = ["Delta", "Largest", "Mean", *_GROUPS]
    return [Sheet("Privacy: epsilon of the clients", _CAPTION, headings, rows)] if rows else []


def _grouped(records: Records) -> pd.DataFrame:
    """Clients of the complete runs with their ``group``: a client that arrived later and left earlier has arrived later."""
    clients = records.privacy[records.privacy["state"] == "complete"]
    last = clients.groupby("key")["departure"].transform("max")
    names = np.where(clients["arrival"] > 1, _GROUPS[1], np.where(clients["departure"] < last, _GROUPS[2], _GROUPS[0]))
    return clients.assign(group=names)


def _cells(clients: pd.DataFrame) -> list[str]:
    means = clients.groupby("group")["epsilon"].mean().reindex(_GROUPS)
    values = [clients["epsilon"].max(), clients["epsilon"].mean(), *means]
    return [f"{clients['delta'].max():.2g}", *(NOTHING if np.isnan(value) else f"{value:.3g}" for value in values)]


sheets.add(70, lambda source: sheets_of(source.records))
