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
from fedtide.studies.tide.board import Board
from fedtide.studies.tide.suite import REFERENCE, REFERENCE_LINES

HEADS = ("method", "mean gain, points", "median", "worst world", "bytes", "gradients")

NOT_APPLICABLE = "n/a"

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
tr.line td {{ border-top: 2px solid #222; }}
</style>
</head>
<body>
<h1>{suite}</h1>
<p>Methods on {worlds} changing client populations, by the plain mean over the worlds of their gain over {reference}, in
points, with 95 % intervals over the seeds. A score is the world's metric on test samples, of the model that each client is
served. A world that refuses a method is not applicable ({none}); such a method has no overall number. A run that diverged has
the score of a constant prediction, and is counted beside it. Bytes and gradients are multiples of {reference}'s. References
below the line are not ranked.</p>
<img alt="{described}" src="data:image/png;base64,{picture}">
{board}
<h2>Gain in every world, points</h2>
{gains}
<h2>Scores, mean and standard deviation over the seeds; in brackets that of the global model</h2>
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
    page = _PAGE.format(
        suite=html.escape(suite),
        worlds=len(board.worlds),
        reference=REFERENCE,
        none=NOT_APPLICABLE,
        described=html.escape("; ".join(" ".join(line[:2]) for line in lines(board))),
        picture=base64.b64encode(picture).decode("ascii"),
        board=_table(lines(board), list(HEADS)),
        gains=_table(gain_lines(board, intervals=True), ["method", *board.worlds]),
        scores=_table(
            [[method, *(_score(board, method, world) for world in board.worlds)] for method in board.methods.index],
            ["method", *(f"{world}, {seeds} seeds" for world, seeds in board.seeds.items())],
        ),
    )
    write_text(out / "board.html", page)
    write_bytes(out / "board.png", picture)
    write_text(out / "board.csv", table(board).to_csv(index=False, float_format="%.5g", lineterminator="\n"))
    write_text(out / "scores.csv", rows.to_csv(index=False, float_format="%.9g", lineterminator="\n"))
    return out / "board.html"


def table(board: Board) -> pd.DataFrame:
    """The rows of ``board.csv``: a method's ``methods`` of the board, its scores, and its gains with their intervals."""
    parts = {
        "": board.scores,
        "global_": board.global_scores,
        "gain_": board.gains,
        "low_": board.low,
        "high_": board.high,
    }
    return board.methods.join([values.add_prefix(prefix) for prefix, values in parts.items()]).reset_index()


def lines(board: Board) -> list[list[str]]:
    """Cells under :data:`HEADS`, a line per method."""
    found = []
    for method, row in board.methods.iterrows():
        gain = [
            _number(row["mean"], row["mean_low"], row["mean_high"]),
            _number(row["median"]),
            f"{_number(row['worst'])} {row['worst_world']}".strip(),
        ]
        found.append([str(method), *([NOTHING] * 3 if method == REFERENCE else gain), *_costs(row)])
    return found


def gain_lines(board: Board, intervals: bool = False) -> list[list[str]]:
    """The gain of every method in every world, ``*`` where runs diverged."""
    found = []
    for method in board.methods.index:
        cells = []
        for world in board.worlds:
            ends = (board.low[world][method], board.high[world][method]) if intervals else ()
            starred = "*" if (method, world) in board.diverged else ""
            cells.append(NOTHING if method == REFERENCE else _number(board.gains[world][method], *ends) + starred)
        found.append([str(method), *cells])
    return found


def _costs(row: pd.Series) -> list[str]:
    return [f"{row[cost]:.1f}" if np.isfinite(row[cost]) else NOTHING for cost in ("bytes", "gradients")]


def _number(value: float, *interval: float) -> str:
    """Points with their sign and an interval, if one is given."""
    if not np.isfinite(value):
        return NOT_APPLICABLE
    text = f"{value:+z.1f} ({interval[0]:+z.1f} to {interval[1]:+z.1f})" if interval else f"{value:+z.1f}"
    return text.replace("-", "\N{MINUS SIGN}")


def _score(board: Board, method: str, world: str) -> str:
    """Mean and standard deviation of the score in a world, in percent, that of the global model, and what diverged."""
    mean, spread, of_global = (table[world][method] for table in (board.scores, board.spread, board.global_scores))
    if not np.isfinite(mean):
        return NOT_APPLICABLE
    count = board.diverged.get((method, world))
    text = f"{mean:.1f} ± {spread:.1f}"
    if np.isfinite(of_global):
        text += f" [{of_global:.1f}]"
    return f"{text}, {count} diverged" if count else text


def _table(cells: list[list[str]], heads: list[str]) -> str:
    """A table of HTML, with a line above the first of the references."""
    text = pd.DataFrame(cells, columns=heads).to_html(index=False, border=0)
    first = next((line[0] for line in cells if line[0] in REFERENCE_LINES), None)
    return text.replace(f"<tr>\n      <td>{first}<", f'<tr class="line">\n      <td>{first}<')


def board_png(board: Board) -> bytes:
    """Means over the worlds with their intervals and medians, and the gain in every world."""
    methods = list(board.methods.index)
    with paper():
        figure = Figure(figsize=(WIDTH, _REST + _ROW * len(methods)), layout="constrained")
        means, worlds = figure.subplots(1, 2, sharey=True, width_ratios=[1, 2])
        places, table = np.arange(len(methods)), board.methods
        means.hlines(places, table["mean_low"], table["mean_high"], color=PALETTE[0], linewidth=1.2)
        means.plot(table["mean"], places, "o", color=PALETTE[0], markersize=4)
        means.plot(table["median"], places, "D", color=PALETTE[1], mfc="white", markersize=4)
        means.axvline(0, color=GRAY, linewidth=0.8)
        means.set_xlabel(f"gain over {REFERENCE}, points")
        means.set_title(
            "\N{BLACK CIRCLE} mean, \N{WHITE DIAMOND} median of the worlds", fontsize=8, fontweight="normal"
        )
        means.grid(axis="x")
        figure.colorbar(_worlds(worlds, board), ax=worlds, shrink=0.6, extend="both", label="points")
        means.set_yticks(range(len(methods)), methods)
        means.set_ylim(len(methods) - 0.5, -0.5)
        ranked = int((~table["line"]).sum())
        if ranked < len(methods):
            for axes in (means, worlds):
                axes.axhline(ranked - 0.5, color="black", linewidth=0.8)
        return png(figure, Description="; ".join(" ".join(line[:3]) for line in lines(board)))


def _worlds(axes: Axes, board: Board) -> AxesImage:
    """A cell per method and world: the gain in points, in color up to :data:`_WIDEST`; gray where it is not applicable."""
    gains = board.gains.to_numpy()
    axes.set_facecolor("#d9d9d9")
    image = axes.imshow(np.ma.masked_invalid(gains), cmap="PuOr_r", vmin=-_WIDEST, vmax=_WIDEST, aspect="auto")
    for line, (_, *texts) in enumerate(gain_lines(board)):
        for column, text in enumerate(texts):
            dark = abs(gains[line, column]) > 0.7 * _WIDEST
            axes.text(column, line, text, ha="center", va="center", fontsize=6.5, color="white" if dark else "black")
    axes.set_xticks(range(gains.shape[1]), board.worlds, rotation=35, ha="right")
    axes.set_title("gain in every world, points (* diverged runs)", fontsize=9, fontweight="normal")
    axes.grid(visible=False)
    return image
