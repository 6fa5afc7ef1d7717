"""The concept of every client, round by round."""

from __future__ import annotations

import numpy as np

from fedtide.report.charts.chart import Axis, Cells, Chart, Panel
from fedtide.world.picture import concept_colours, concept_shares
from fedtide.world.timeline import Timeline

CAPTION = (
    "Of the first run; what a client sees most of its samples under, and of two that are as frequent the later one. Empty: "
    "absent, or without samples."
)

_MOST_CELLS = 200_000


def seen_concepts(timeline: Timeline) -> Chart | None:
    """Clients by rounds, coloured by concept; None without drift, or with more cells than a page should hold."""
    shares = concept_shares(timeline) if timeline.num_clients * timeline.rounds <= _MOST_CELLS else None
    if shares is None or len(shares) < timeline.num_clients:
        return None
    clients, rounds, count = shares.shape
    most = count - 1.0 - shares[:, :, ::-1].argmax(2)
    most[shares.sum(2) == 0] = np.nan
    names = tuple(f"concept {number}" for number in range(count))
    cells = Cells(most, tuple(concept_colours(count)), "", written=False, names=names, first=1)
    x = Axis("Communication round", whole=True, low=0.5, high=rounds + 0.5)
    y = Axis("Client", whole=True, low=clients - 0.5, high=-0.5)
    return Chart(x, y, (Panel(cells=cells),), 1, 3.4)
