"""The world of the runs: the clients' data over time, and who takes part when."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from fedtide.core import plugins
from fedtide.core.array_types import Bools, Ints
from fedtide.methods.accounting.cohorts import cohorts
from fedtide.report import picture
from fedtide.report.charts.pictures import Drawing, drawings
from fedtide.report.charts.style import PALETTE, WIDTH, paper
from fedtide.report.parts import Source, figures
from fedtide.settings.run import RunSettings
from fedtide.world.participation.base import Participation
from fedtide.world.timeline import Timeline

_COLORS = ("#f0f0f0", "#a9c7de", PALETTE[0])  # absent, present, takes part
_COHORTS = (
    "Cohorts of the first run, identical for every algorithm with its seed. Below: clients present and taking part, "
    "by round; right: share of its rounds in which a client takes part."
)


def _world(source: Source) -> list[Drawing]:
    given = source.contents.world
    name, content = (given.stem, given.read_bytes()) if isinstance(given, Path) else ("world", given)
    caption = "As generated before training."
    return [] if content is None else [Drawing(name, "Clients and their data", caption, content, name == "world")]


def presence_and_cohorts(settings: RunSettings, timeline: Timeline, labels: Ints) -> tuple[Bools, Bools]:
    """Whether each client is present, and participates, in each round: bool [N, rounds]. ``labels``: of the training set."""
    rule = plugins.create(Participation, settings.participation)
    rule.bind(timeline, labels, settings.seed)
    found = cohorts(rule, timeline, settings.seed)
    return found.present, found.drawn


def raster(present: Bools, drawn: Bools, clients_named: Sequence[str] = ()) -> Figure | None:
    """Two tables [N, rounds], of clients that may have names; None if everybody present takes part in every round."""
    if np.array_equal(present, drawn):
        return None
    clients, rounds = present.shape
    with paper():
        figure = Figure(figsize=(WIDTH, 4.6), layout="constrained")
        (image, shares), (numbers, spare) = figure.subplots(
            2, 2, sharex="col", sharey="row", gridspec_kw={"width_ratios": (8, 1), "height_ratios": (4, 1)}
        )
        spare.set_visible(False)
        look = {"cmap": ListedColormap(_COLORS), "vmin": 0, "vmax": 2}
        picture.raster(image, present.astype(np.int8) + drawn, (0.5, rounds + 0.5), clients, **look)
        image.set_ylabel("Client")
        picture.name_clients(image.yaxis, clients_named)
        here = present.sum(1)
        shares.barh(np.arange(clients), drawn.sum(1) / np.maximum(here, 1), height=1.0, color=_COLORS[2])
        shares.set_xlim(0, 1)
        shares.set_xlabel("Share")
        shares.tick_params(labelbottom=True)
        for row, color in ((present, _COLORS[1]), (drawn, _COLORS[2])):
            numbers.stairs(row.sum(0), np.arange(rounds + 1) + 0.5, color=color, fill=True)
        numbers.set_ylim(bottom=0)
        numbers.set_xlim(0.5, rounds + 0.5)
        numbers.set_ylabel("Clients")
        numbers.set_xlabel("Communication round")
        for axes in (image, shares):
            axes.grid(visible=False)
        names = zip(_COLORS, ("absent", "present", "takes part"), strict=True)
        figure.legend(handles=[Patch(color=c, label=name) for c, name in names], loc="outside upper center", ncols=3)
        return figure


figures.add(260, _world)
figures.add(270, lambda source: drawings("cohorts", "Participation by round", _COHORTS, source.contents.cohorts))
