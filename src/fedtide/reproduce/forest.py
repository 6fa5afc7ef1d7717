"""A paper's claims as a forest plot and as a table: published values, and ours with their intervals."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedtide.report.charts.style import GREY, PALETTE, WIDTH, paper, png
from fedtide.reproduce.claims import Claim, Evidence, Paper, evidence, summary
from fedtide.reproduce.results import markdown_table

HEADS = ("claim", "verdict", "ours (95 % interval)")
NOT_RUN = "not run"

_OURS, _PUBLISHED = PALETTE[0], PALETTE[1]
_ROW, _PANEL, _LEGEND = 0.25, 0.5, 0.35
"""Heights in inches: of a row, of what surrounds the rows of a panel, of the legend."""

_SHIFT = 0.17  # rows between a published value and ours
_COLUMNS = (10, 64)  # left ends of the written numbers, in points from the axes


class Drawn(NamedTuple):
    """A row of the figure."""

    panel: str
    claim: Claim
    found: Evidence


def weigh(paper: Paper, results: Path, experiments: Path) -> tuple[list[list[str]], list[Drawn]]:
    """Lines of the table under :data:`HEADS`, and rows of the figure; see :func:`fedtide.reproduce.claims.evidence`."""
    lines, drawn = [], []
    for claim in paper.claims:
        rows = evidence(claim, results, experiments)
        mean = summary(claim, rows)
        lines.append([claim.claim, claim.verdict, claim.remark or _with_unit(mean, claim)])
        drawn += [Drawn(claim.panel, claim, row) for row in rows if claim.panel is not None]
    return lines, drawn


def table(lines: list[list[str]]) -> str:
    """The table in Markdown."""
    return markdown_table(HEADS, lines)


def described(rows: list[Drawn]) -> str:
    """The figure in words."""
    return "\n".join(
        f"{panel}: {row.name}: published {_published(row, claim)}, ours {_ours(row, claim)}"
        for panel, claim, row in rows
    )


def forest_png(of: Paper, rows: list[Drawn]) -> bytes:
    """A panel per group of rows; values beyond the ends of an axis are arrows at its edge."""
    panels: dict[str, list[Drawn]] = {}
    for row in rows:
        panels.setdefault(row.panel, []).append(row)
    heights = [len(group) for group in panels.values()]
    height = _LEGEND + _PANEL * len(panels) + _ROW * len(rows)
    with paper():
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        grid = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
        for axes, (title, group) in zip(grid, panels.items(), strict=True):
            _panel(axes, title, group, of.limits.get(title))
        for left, text, colour in zip(_COLUMNS, ("published", "ours"), (_PUBLISHED, _OURS), strict=True):
            _beside(grid[0], -1, left, text, colour)
        figure.legend(handles=_handles(grid[0], rows), loc="outside upper left", ncols=3)
        return png(figure, Description=described(rows))


def _handles(axes: Axes, rows: list[Drawn]) -> list[Any]:
    """Entries of the legend."""
    look: dict[str, Any] = {"linestyle": "none", "markersize": 5}
    halves = np.array([row.found.half for row in rows if not math.isnan(row.found.obtained)])
    handles: list[Any] = [axes.plot([], [], "D", color=_PUBLISHED, label="published", **look)[0]]
    if not np.isnan(halves).all():
        handles.append(axes.errorbar([], [], xerr=[], fmt="o", color=_OURS, markersize=5, label="ours, 95 % interval"))
    if np.isnan(halves).any():
        handles.append(axes.plot([], [], "o", color=_OURS, mfc="white", label="ours, no interval", **look)[0])
    return handles


def _panel(axes: Axes, title: str, rows: list[Drawn], limits: tuple[float, float] | None) -> None:
    axes.set_title(title, loc="left")
    axes.grid(axis="x")
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_yticks(range(len(rows)), [row.found.name for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    low, high = limits or _limits(rows)
    axes.set_xlim(low, high)
    if all(row.found.signed for row in rows):
        axes.axvline(0, color=GREY, linewidth=1)
    for place, (_, claim, row) in enumerate(rows):
        _point(axes, row.published, place - _SHIFT, "D", _PUBLISHED, _PUBLISHED)
        if not math.isnan(row.half):
            ends = np.clip([row.obtained - row.half, row.obtained + row.half], low, high)
            axes.plot(ends, [place + _SHIFT] * 2, color=_OURS, linewidth=1.6, solid_capstyle="butt")
        _point(axes, row.obtained, place + _SHIFT, "o", _OURS, "white" if math.isnan(row.half) else _OURS)
        _beside(axes, place, _COLUMNS[0], _published(row, claim), _PUBLISHED)
        _beside(axes, place, _COLUMNS[1], _ours(row, claim), _OURS)


def _beside(axes: Axes, place: float, left: float, text: str, colour: str) -> None:
    """Text to the right of the axes."""
    where: dict[str, Any] = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points"}
    axes.annotate(text, (1, place), (left, 0), va="center", fontsize=8, color=colour, annotation_clip=False, **where)


def _point(axes: Axes, value: float, place: float, marker: str, colour: str, face: str) -> None:
    low, high = axes.get_xlim()
    if value < low or value > high:
        value, marker = (low, "<") if value < low else (high, ">")
    axes.plot([value], [place], marker, color=colour, mfc=face, markersize=5, clip_on=False, zorder=3)


def _limits(rows: list[Drawn]) -> tuple[float, float]:
    """All values and intervals, and 0 for differences, with a margin."""
    values = [
        end
        for _, _, row in rows
        for end in (row.published, row.obtained, row.obtained - row.half, row.obtained + row.half)
        if not math.isnan(end)
    ]
    if all(row.found.signed for row in rows):
        values.append(0.0)
    room = 0.06 * (max(values) - min(values) or 1.0)
    return min(values) - room, max(values) + room


def number(value: float, claim: Claim, signed: bool) -> str:
    """A number with the decimals of its claim."""
    value = round(value, claim.digits) + 0.0
    return f"{value:{'+' if signed and value else ''}.{claim.digits}f}".replace("-", "\N{MINUS SIGN}")


def _interval(found: Evidence, claim: Claim) -> str:
    if math.isnan(found.half):
        return ", one seed" if found.seeds == 1 else ", no interval"
    ends = (number(found.obtained + side * found.half, claim, found.signed) for side in (-1, 1))
    return f" ({', '.join(ends)})"


def _published(found: Evidence, claim: Claim) -> str:
    return "none" if math.isnan(found.published) else number(found.published, claim, found.signed)


def _ours(found: Evidence, claim: Claim) -> str:
    if math.isnan(found.obtained):
        return NOT_RUN
    return number(found.obtained, claim, found.signed) + _interval(found, claim)


def _with_unit(found: Evidence, claim: Claim) -> str:
    if math.isnan(found.obtained):
        return NOT_RUN
    return " ".join(filter(None, (number(found.obtained, claim, found.signed), claim.unit))) + _interval(found, claim)
