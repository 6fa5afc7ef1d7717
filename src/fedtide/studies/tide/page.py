"""The board as files: one page, its picture, and tables."""

import base64
import html
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from fedtide.core.storage.files import make_folder, write_bytes, write_text
from fedtide.report.charts.style import GRAY, PALETTE, WIDTH, paper, png
from fedtide.report.formats import NOTHING
from fedtide.studies.tide.board import NO_RUNS, Board
from fedtide.studies.tide.suite import REFERENCE

HEADS = ("method", "mean rank", "gain, points", "better", "bytes", "gradients")

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{suite}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem; color: #222; }}
img {{ max-width: 100%; }}
table {{ border-collapse: collapse; font-size: 13px; margin: 1rem 0; display: block; overflow-x: auto; }}
th, td {{ padding: .2rem .7rem; text-align: right; border-bottom: 1px solid #e4e4e4; white-space: nowrap; }}
th:first-child, td:first-child {{ text-align: left; }}
</style>
</head>
<body>
<h1>{suite}</h1>
<p>Methods on {worlds} changing client populations, by their mean rank. A score is the world's metric on test samples, in
percent; the gain is the interquartile mean over the worlds of the difference from {reference} (the picture has the plain
mean, too); <em>better</em> is the probability of a better score than {reference}'s at the same seed. Intervals are 95 % over
seeds, for these worlds. Bytes and gradients are multiples of {reference}'s. A run that diverged scores 0, and so does a world
without runs: it refuses the method, or all trials of the search diverged.</p>
<img alt="{described}" src="data:image/png;base64,{picture}">
{board}
<h2>Scores</h2>
{scores}
</body>
</html>
"""

_ROW, _REST = 0.26, 1.25  # heights in inches: of a row of the picture, of all else
_WIDEST = 10.0  # points: largest gain that the colors of the picture tell apart


def write(board: Board, rows: pd.DataFrame, out: Path, suite: str) -> Path:
    """Write ``board.html``, ``board.png``, ``board.csv`` (a row per method) and ``scores.csv`` (a row per run); the page.

    ``suite``: its name.
    """
    make_folder(out)
    picture = board_png(board)
    described = "; ".join(" ".join(line[:2]) for line in lines(board))
    scores = pd.DataFrame(
        [[method, *_cells(board, method)] for method in map(str, board.scores.index)],
        columns=["method", *(f"{world}, {seeds} seeds" for world, seeds in board.seeds.items())],
    )
    page = _PAGE.format(
        suite=html.escape(suite),
        worlds=len(board.worlds),
        reference=REFERENCE,
        described=html.escape(described),
        picture=base64.b64encode(picture).decode("ascii"),
        board=pd.DataFrame(lines(board), columns=HEADS).to_html(index=False, border=0),
        scores=scores.to_html(index=False, border=0),
    )
    write_text(out / "board.html", page)
    write_bytes(out / "board.png", picture)
    write_text(out / "board.csv", board.methods.join(board.scores).to_csv(float_format="%.5g", lineterminator="\n"))
    write_text(out / "scores.csv", rows.to_csv(index=False, float_format="%.9g", lineterminator="\n"))
    return out / "board.html"


def lines(board: Board) -> list[list[str]]:
    """Cells under :data:`HEADS`, a line per method."""
    found = []
    for method, row in board.methods.iterrows():
        own = method == REFERENCE
        found.append(
            [
                str(method),
                _with_interval(row, "rank", ".1f"),
                NOTHING if own else _with_interval(row, "gain", "+.1f"),
                NOTHING if own else _with_interval(row, "better", ".0%"),
                f"{row['bytes']:.1f}",
                f"{row['gradients']:.1f}",
            ]
        )
    return found


def _with_interval(row: pd.Series, name: str, digits: str) -> str:
    value, low, high = (f"{row[key]:{digits}}" for key in (name, f"{name}_low", f"{name}_high"))
    return f"{value} ({low} to {high})".replace("-", "\N{MINUS SIGN}")


def _cells(board: Board, method: str) -> list[str]:
    """Mean and standard deviation of the score in every world, in percent, with what failed."""
    cells = []
    for world in board.worlds:
        words = board.failed.get((method, world))
        mean, spread = (table[world][method] for table in (board.scores, board.spread))
        cell = f"{mean:.1f} ± {spread:.1f}"
        cells.append(cell if words is None else words if words == NO_RUNS else f"{cell}, {words}")
    return cells


def board_png(board: Board) -> bytes:
    """Mean ranks and gains with their intervals, and the gain in every world."""
    methods = list(board.methods.index)
    with paper():
        figure = Figure(figsize=(WIDTH, _REST + _ROW * len(methods)), layout="constrained")
        ranks, gains, worlds = figure.subplots(1, 3, sharey=True, width_ratios=[1, 1, 1.3])
        _intervals(ranks, board.methods, "rank", "mean rank over the worlds")
        _intervals(gains, board.methods, "gain", f"gain over {REFERENCE}, points")
        gains.plot(board.gains.mean(axis=1), np.arange(len(methods)), "D", color=PALETTE[1], mfc="white", markersize=4)
        gains.axvline(0, color=GRAY, linewidth=0.8)
        gains.set_title("\N{BLACK CIRCLE} interquartile mean, \N{WHITE DIAMOND} mean", fontsize=8, fontweight="normal")
        figure.colorbar(_worlds(worlds, board), ax=worlds, shrink=0.6, extend="both", label="points")
        ranks.set_yticks(range(len(methods)), methods)
        ranks.set_ylim(len(methods) - 0.5, -0.5)
        return png(figure, Description="; ".join(" ".join(line[:3]) for line in lines(board)))


def _intervals(axes: Axes, methods: pd.DataFrame, name: str, label: str) -> None:
    values, low, high = (methods[key].to_numpy() for key in (name, f"{name}_low", f"{name}_high"))
    places = np.arange(len(methods))
    axes.hlines(places, low, high, color=PALETTE[0], linewidth=1.2)
    axes.plot(values, places, "o", color=PALETTE[0], markersize=4)
    axes.set_xlabel(label)
    axes.grid(axis="x")


def _worlds(axes: Axes, board: Board) -> AxesImage:
    """A cell per method and world: the gain in points, in color up to :data:`_WIDEST`; gray without runs."""
    gains = board.gains.to_numpy()
    missing = [[board.failed.get((method, world)) == NO_RUNS for world in board.worlds] for method in board.gains.index]
    shown = np.ma.masked_array(gains, mask=missing)
    axes.set_facecolor("#d9d9d9")
    image = axes.imshow(shown, cmap="PuOr_r", vmin=-_WIDEST, vmax=_WIDEST, aspect="auto")
    for line, method in enumerate(board.gains.index):
        for column, world in enumerate(board.worlds):
            words = board.failed.get((method, world), "")
            text = f"{gains[line, column]:+.1f}{'*' if words else ''}".replace("-", "\N{MINUS SIGN}")
            text = NO_RUNS.replace(" ", "\n") if words == NO_RUNS else "" if method == REFERENCE else text
            dark = abs(gains[line, column]) > 0.7 * _WIDEST and words != NO_RUNS
            axes.text(column, line, text, ha="center", va="center", fontsize=6.5, color="white" if dark else "black")
    axes.set_xticks(range(gains.shape[1]), board.worlds, rotation=35, ha="right")
    axes.set_title("gain in every world, points", fontsize=9, fontweight="normal")
    axes.grid(visible=False)
    return image
