"""Figures of FedSSG's participants: gates and, with ``evaluation.consistency``, whether local and global progress agree.

python experiments/fedssg/participants.py runs report/fmnist

writes ``gates.png``, the gates of the clients, and ``consistency.png``, a point per pair of consecutive selections of a client:
change of the training loss of the received model, on all data and on the client's own, of all complete runs of a method.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator

import fedtide
from fedtide.core.storage.files import write_bytes
from fedtide.records.frames import Records, by_method
from fedtide.report.charts.methods import method_names
from fedtide.report.charts.style import GRAY, PALETTE, WIDTH, paper, png, wrapped

_LINEAR = 0.01  # loss changes below this are on a linear scale, larger ones on a logarithmic one
_MOST_POINTS = 4000  # in a panel; more would only overlap


def gates(records: Records) -> Figure | None:
    """Gate of every client over the rounds it took part in, and their mean, of one complete run per method."""
    panels = _panels(records, "gate")
    if not panels:
        return None
    with paper():
        figure, grid = _grid(len(panels), 2.6)
        for axes, (name, rows) in zip(grid, panels, strict=True):
            one = rows[rows["key"] == rows["key"].iloc[0]]
            wide = one.pivot(index="round", columns="client", values="gate")
            for client in wide.columns:
                taken = wide[client].dropna()
                axes.plot(taken.index, taken, color=PALETTE[0], linewidth=0.6, alpha=0.3, drawstyle="steps-post")
            axes.plot(wide.index, wide.ffill().fillna(0).mean(axis=1), color="black", label="mean over clients")
            axes.set_title(wrapped(name, 84 // min(len(panels), 3)))
            axes.set_ylim(bottom=0)
        grid[0].legend(loc="upper left")
        figure.supxlabel("Communication round", fontsize=9)
        figure.supylabel("Gate", fontsize=9)
        return figure


def consistency(records: Records) -> Figure | None:
    """Change of the local over the global training loss, between consecutive selections of a client."""
    panels = [(name, loss_changes(rows)) for name, rows in _panels(records, "local_loss")]
    panels = [(name, changes) for name, changes in panels if len(changes)]
    if not panels:
        return None
    far = 1.2 * max(float(np.abs(changes[["local", "global"]].to_numpy()).max()) for _, changes in panels)
    decades = [decade for decade in (10.0, 1.0, 0.1, 0.01) if decade < far][:2]
    ticks = [0.0, *decades, *(-decade for decade in decades)]
    with paper():
        figure, grid = _grid(len(panels), 3.2)
        for axes, (name, changes) in zip(grid, panels, strict=True):
            drawn = changes.iloc[:: -(-len(changes) // _MOST_POINTS)]
            axes.plot([-far, far], [-far, far], color=GRAY, linewidth=0.7)
            axes.axhline(0, color=GRAY, linewidth=0.7)
            axes.axvline(0, color=GRAY, linewidth=0.7)
            look: Any = {"s": 7, "cmap": "cividis", "linewidths": 0, "alpha": 0.7}
            points = axes.scatter(drawn["global"], drawn["local"], c=drawn["round"], **look)
            agree = np.mean(np.sign(changes["global"]) == np.sign(changes["local"]))
            axes.set_title(wrapped(f"{name}: {100 * agree:.0f} % agree", 84 // min(len(panels), 3)))
            axes.set_xscale("symlog", linthresh=_LINEAR)
            axes.set_yscale("symlog", linthresh=_LINEAR)
            axes.set_xlim(-far, far)
            axes.set_ylim(-far, far)
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_locator(FixedLocator(ticks))
                axis.set_major_formatter("{x:g}")
            axes.grid(visible=False)
        figure.supxlabel("Change of the global training loss", fontsize=9)
        figure.supylabel("Change of the local training loss", fontsize=9)
        bar = figure.colorbar(points, ax=grid, fraction=0.03, pad=0.02)
        bar.set_label("Round")
        bar.outline.set_visible(False)
        return figure


def loss_changes(rows: pd.DataFrame) -> pd.DataFrame:
    """``round``, ``local`` and ``global``: changes of a client's losses since its last selection.

    Args:
        rows: of ``Records.clients``. A client's first selection is left out.
    """
    ordered = rows.sort_values(["key", "client", "round"], kind="stable")
    changes = ordered.groupby(["key", "client"])[["local_loss", "global_loss"]].diff()
    found = changes.rename(columns={"local_loss": "local", "global_loss": "global"}).assign(round=ordered["round"])
    return found.dropna().sort_values("round", kind="stable")


def _panels(records: Records, column: str) -> list[tuple[str, pd.DataFrame]]:
    """Name and rows of each method whose complete runs recorded the column."""
    rows = records.clients[(records.clients["state"] == "complete") & records.clients[column].notna()]
    groups = by_method(rows)
    return list(zip(method_names(list(groups)).values(), groups.values(), strict=True))


def _grid(panels: int, height: float) -> tuple[Figure, list[Axes]]:
    """A figure with this number of panels, at most three in a row."""
    columns = min(panels, 3)
    lines = -(-panels // columns)
    figure = Figure(figsize=(WIDTH, 0.5 + height * lines), layout="constrained")
    grid = list(figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).flat)
    for spare in grid[panels:]:
        spare.set_visible(False)
    return figure, grid[:panels]


def main(runs: Path, out: Path) -> list[Path]:
    """Write the figures that the runs of a folder have data for; their files."""
    read, written = fedtide.load(runs), []
    for name, draw in (("gates", gates), ("consistency", consistency)):
        if (figure := draw(read)) is not None:
            out.mkdir(parents=True, exist_ok=True)
            with paper():
                write_bytes(out / f"{name}.png", png(figure))
            written.append(out / f"{name}.png")
    return written


if __name__ == "__main__":
    print(*main(*map(Path, sys.argv[1:])), sep="\n")
