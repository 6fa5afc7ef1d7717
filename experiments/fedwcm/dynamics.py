"""The figure of the server's momentum.

    python experiments/fedwcm/dynamics.py runs report

writes ``momentum.png``: norm of the momentum, and weight of the gradient in a local step, as used in the next round. Lines:
mean of the complete runs; shading: range over the seeds.
"""

import sys
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

import fedtide
from fedtide.core.storage.files import write_bytes
from fedtide.records.frames import Records, by_method
from fedtide.report.charts.methods import method_names
from fedtide.report.charts.style import WIDTH, line_style, logarithmic, paper, png

COLUMNS = {"momentum_norm": "Norm of the momentum", "alpha": "Weight of the gradient"}


def momentum(records: Records) -> Figure | None:
    """Norm of the server's momentum and alpha over the rounds, a line per method with the range over its runs; None without."""
    rows = records.history[records.history["state"] == "complete"].dropna(subset=list(COLUMNS))
    if rows.empty:
        return None
    methods = by_method(rows)
    names = method_names(list(methods))
    figure = Figure(figsize=(WIDTH, 3.6), layout="constrained")
    for axes, (column, title) in zip(figure.subplots(1, len(COLUMNS)), COLUMNS.items(), strict=True):
        for number, (method, own) in enumerate(methods.items()):
            of: pd.DataFrame = own.groupby("round")[column].agg(["mean", "min", "max"])
            look = line_style(number)
            axes.plot(of["mean"], label=names[method], **look)
            axes.fill_between(of.index, of["min"], of["max"], color=look["color"], alpha=0.18, linewidth=0)
        if rows[column].max() > 20 * rows[column].median() > 0:
            axes.set_yscale("log")
            logarithmic(axes.yaxis)
        axes.set_xlabel("Communication round")
        axes.set_ylabel(title)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=min(4, len(methods)))
    return figure


def main(runs: Path, out: Path) -> list[Path]:
    """Write the figure, if the runs of a folder have data for it; its file."""
    with paper():
        if (figure := momentum(fedtide.load(runs))) is None:
            return []
        out.mkdir(parents=True, exist_ok=True)
        write_bytes(out / "momentum.png", png(figure))
    return [out / "momentum.png"]


if __name__ == "__main__":
    print(*main(*map(Path, sys.argv[1:])), sep="\n")
