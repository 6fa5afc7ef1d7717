"""The measured score over rounds of the runs behind a table, with the published final numbers beside it."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pandas as pd
from matplotlib.figure import Figure

from fedtide.report.charts.style import WIDTH, line_style, paper, png
from fedtide.studies.reproduce.recipe import Cell, Recipe
from fedtide.studies.reproduce.results import Find

_HEIGHT = 2.8  # inches of a panel
_POINTS = 50  # independent points of a drawn line; noisier lines hide each other


Curves = dict[Cell, "pd.Series[float]"]


def curves(recipe: Recipe, find: Find, kept: Curves) -> Curves:
    """The test score (shares in percent) by round (from 1): mean of each cell's complete runs, or the curve that was kept.

    Empty for a table about single sessions of longer runs.
    """
    found: Curves = {}
    if len(recipe.table.transitions) > 1:
        return found
    for cell in recipe.cells:
        if cell in kept:
            found[cell] = kept[cell]
            continue
        histories = [find(recipe.runs(cell, seed)[0]) for seed in recipe.seeds]
        lines = [history.score for history in histories if history is not None]
        if lines:
            mean = pd.concat(lines, axis=1).mean(axis=1)
            found[cell] = mean.set_axis(pd.RangeIndex(1, len(mean) + 1, name="round"))
    return found


def curves_csv(lines: Curves, recipe: Recipe) -> str:
    """A row per round, a column per cell, headed like ``classes=1 algorithm=fedavg``."""
    frame = pd.concat(list(lines.values()), axis=1, keys=map(recipe.heading, lines))
    return str(frame.to_csv(float_format="%.2f", lineterminator="\n"))


def span(lines: Iterable[pd.Series[float]], goals: Iterable[float], percent: bool = True) -> tuple[float, float]:
    """Limits of the axis of the score: covers the curves after the first tenth of the rounds, and the goals."""
    late = [value for line in lines for value in (line.iloc[len(line) // 10 :].min(), line.max())]
    low, high = min(*late, *goals), max(*late, *goals)
    room = max(0.04 * (high - low), 0.05)
    return max(low - room, 0.0), min(high + room, 100.0 if percent else math.inf)


def smoothed(lines: Curves) -> tuple[Curves, int]:
    """Moving means over a fiftieth of the rounds, and how many rounds these are; with fewer than 100, the lines as they are."""
    window = max(1, max(map(len, lines.values())) // _POINTS)
    return {cell: line.rolling(window, min_periods=1).mean() for cell, line in lines.items()}, window


def curves_png(lines: Curves, recipe: Recipe) -> bytes:
    """A panel per world of the grid; diamonds at the right edge are the published numbers, whatever their round."""
    lines, window = smoothed(lines)
    unit = " (%)" if recipe.score.share else ""
    over = f"\nmean of {window} rounds" if window > 1 else ""
    worlds = list(dict.fromkeys(cell.world for cell in lines))
    numbers: dict[str, int] = {}
    with paper():
        figure = Figure(figsize=(WIDTH, _HEIGHT * len(worlds)), layout="constrained")
        for axes, world in zip(figure.subplots(len(worlds), squeeze=False)[:, 0], worlds, strict=True):
            axes.set_title(", ".join(f"{name} {value}" for name, value in zip(recipe.table.grid, world, strict=True)))
            shown = [cell for cell in lines if cell.world == world]
            found = {cell: recipe.published.get((cell, recipe.score.name)) for cell in shown}
            goals = {cell: number.mean for cell, number in found.items() if number is not None}
            for cell in shown:
                places = [place for name, place in recipe.distinguishing.items() if name not in recipe.table.grid]
                own = [cell.values[place] for place in places]
                name = " · ".join(own) or cell.algorithm
                look = line_style(numbers.setdefault(name, len(numbers)))
                axes.plot(lines[cell], label=name, **look)
                if cell in goals:
                    right, color = axes.get_yaxis_transform(), look["color"]
                    axes.plot([1.015], [goals[cell]], "D", transform=right, clip_on=False, markersize=4.5, color=color)
            axes.set_ylim(span([lines[cell] for cell in shown], goals.values(), recipe.score.share))
            axes.set_ylabel(f"Test {recipe.score.words}{unit}{over}")
            axes.legend(loc="center left", bbox_to_anchor=(1.03, 0.5), handlelength=1.6)
        axes.set_xlabel("Communication round")
        return png(figure)
