"""Tables and forest plots of what became of papers' claims, from results/ and `experiments/*/published/claims.yaml`.

    python experiments/findings.py results docs/reports

replaces the first table of every docs/reports/claims_*.md, and draws docs/reports/images/forest_*.png: published and obtained
differences between methods, with 95 % intervals.

Tables keep the mean and the standard deviation of a cell, not its seeds, so intervals are unpaired (Welch 1947). Rows of a
table share seeds: the interval of a mean over rows has the mean of their half-widths, which is wide enough however strongly
rows vary together.

A claim that two settings do not differ has a ``margin``. Its verdict is computed: *consistent with* if the whole interval lies
within the margin, otherwise *not decided*.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import Field
from scipy import stats

from fedtide.cli.exits import guarded
from fedtide.core.errors import SettingsError, nearest
from fedtide.core.plugins import SettingsModel
from fedtide.core.storage.files import write_bytes, write_text
from fedtide.report.charts.style import GRAY, PALETTE, WIDTH, paper, png
from fedtide.settings.params import parse
from fedtide.settings.reading.overrides import deep_merge
from fedtide.settings.reading.yaml_files import read_mapping
from fedtide.studies.reproduce.results import markdown_table

EXPERIMENTS = Path(__file__).parent
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
HEADS = ("claim", "verdict", "ours (95 % interval)")
NOT_RUN = "not run"
VERDICTS = (
    *("holds", "in part", "consistent with", "not decided", "not reproduced", "not consistent with"),
    *("not tested yet", "not testable here"),
)
"""First words of every verdict; docs/findings.md defines them."""
BEST = "best"  # of `against`: in every row of a table the best of all others
NUMBERS = ("published", "published_std", "obtained", "std", "difference", "seeds", "rounds", "settings", "mean")
OURS, PUBLISHED = PALETTE[0], PALETTE[1]


class Measured(SettingsModel):
    """What decides a claim: a value of one method, or its difference from others, averaged over the rows of a table."""

    results: str | None = None  # CSV file below the results, without suffix; null: not run
    published: str | None = None  # CSV file with published values, below the experiments; default: those in the results
    quantity: str = "accuracy"
    variant: str = ""
    column: str = "algorithm"  # with the names of the methods
    of: str
    against: tuple[str, ...] = ()  # others, of which the best one in every row counts; none: the value itself
    where: dict[str, tuple[str, ...]] = Field({})  # column -> its values in the rows that count
    lower: bool = False  # less is better: the sign of a difference is turned
    spread: bool = True  # whether there is an interval; not for medians
    scale: float = 1.0  # factor of the obtained value, e.g. 100 for points

    @property
    def paired(self) -> bool:
        """Whether the results are differences already, paired over seeds or months, with their intervals."""
        return self.results is not None and Path(self.results).name == "comparisons"


class Claim(SettingsModel):
    """A claim and our verdict on it."""

    claim: str
    verdict: str  # starts with one of VERDICTS; with a margin it is computed, and this is what follows it
    margin: float | None = None  # of a claim that there is no difference: the largest one that counts as none
    unit: str = "points"
    digits: int = 1
    panel: str | None = None  # title of the figure's panel; null: in the table alone
    measured: dict[str, Any] = Field({})  # what all rows have in common
    rows: dict[str, dict[str, Any]] = Field({})  # name -> the rest of what is measured
    remark: str = ""  # stands in place of the number, where results/ has none


class Paper(SettingsModel):
    """A paper's claims."""

    title: str
    limits: dict[str, tuple[float, float]] = Field({})  # panel -> ends of its axis; default: all values
    claims: tuple[Claim, ...]


class Evidence(NamedTuple):
    """Numbers of a claim, or of one of its rows: NaN for those that do not exist.

    ``half``: of the 95 % interval. ``seeds``: fewest behind a cell, or pairs of a paired comparison. ``signed``: a difference.
    """

    name: str
    published: float
    obtained: float
    half: float
    seeds: int
    signed: bool


class Drawn(NamedTuple):
    """A row of the figure."""

    panel: str
    claim: Claim
    found: Evidence


def read_paper(file: Path) -> Paper:
    """Read a file of claims."""
    found: Paper = parse(Paper, read_mapping(file), file.name)
    return found


def evidence(claim: Claim, results: Path, experiments: Path) -> list[Evidence]:
    """The numbers of every row of a claim, from folders of reproduced tables and of published ones.

    Raises:
        SettingsError: no such file, column or method.
    """
    found = []
    for name, rest in claim.rows.items():
        one: Measured = parse(Measured, deep_merge(claim.measured, rest), f"{claim.claim}, {name}")
        own = obtained(one, results / f"{one.results}.csv") if one.results else (math.nan, math.nan, 0)
        found.append(Evidence(name, published(one, results, experiments), *own, bool(one.against) or one.paired))
    return found


def summary(claim: Claim, rows: list[Evidence]) -> Evidence:
    """The mean over the rows of a claim; see the module for its interval."""
    if not rows:
        return Evidence(claim.claim, math.nan, math.nan, math.nan, 0, False)
    means = (float(np.mean(column)) for column in list(zip(*rows, strict=True))[1:4])
    return Evidence(claim.claim, *means, min(row.seeds for row in rows), rows[0].signed)


def obtained(one: Measured, path: Path) -> tuple[float, float, int]:
    """Value, half-width of its interval and number of seeds."""
    frame = read(path, one.where)
    if one.paired:
        frame = frame[frame["method"] == one.of]
        if len(frame) != 1:
            raise SettingsError(f"{path}: {len(frame)} rows of {one.of} instead of one; choose with `where`")
        value, low, high = (one.scale * float(frame[name].iloc[0]) for name in ("difference", "low", "high"))
        return value, (high - low) / 2, int(frame["pairs"].iloc[0])
    rows = compared(frame, one, "obtained", path)
    if not rows:
        return math.nan, math.nan, 0
    cells = [[cell for cell in row if cell is not None] for row in rows]
    half = one.scale * float(np.mean([half_width(*row) for row in cells])) if one.spread else math.nan
    value = one.scale * float(np.mean([difference(row, one) for row in rows]))
    return value, half, min(int(cell["seeds"]) for row in cells for cell in row)


def published(one: Measured, results: Path, experiments: Path) -> float:
    """The published value; a condition on a column that its file does not have holds for all its rows."""
    if one.published is not None:
        path, column = experiments / f"{one.published}.csv", "mean"
        columns = read(path, {}).columns
        where = {name: values for name, values in one.where.items() if name in columns}
    elif one.results is not None and not one.paired:
        path, column, where = results / f"{one.results}.csv", "published", one.where
    else:
        return math.nan
    rows = compared(read(path, where), one, column, path)
    return float(np.mean([difference(row, one) for row in rows])) if rows else math.nan


def read(path: Path, where: Mapping[str, tuple[str, ...]]) -> pd.DataFrame:
    """The rows of a CSV file that count, as text."""
    if not path.is_file():
        raise SettingsError(f"no file {path}")
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    for column, values in where.items():
        known(path, "column", column, frame)
        for value in values:
            known(path, column, value, frame[column].unique())
        frame = frame[frame[column].isin(values)]
    return frame


def known(path: Path, kind: str, name: str, names: Any) -> None:
    """Refuse a name that a file does not have."""
    if name not in set(names):
        raise SettingsError(nearest(f"{path}: no {kind} {name!r}", name, sorted(map(str, names))))


Row = tuple["pd.Series[Any]", "pd.Series[Any] | None"]
"""Cells of a method and of the one that it is compared with, None for none: ``value``, ``std`` and ``seeds`` as numbers."""


def compared(frame: pd.DataFrame, one: Measured, value: str, path: Path) -> list[Row]:
    """The rows of a table in which both have a number in the column ``value``."""
    for name in ("quantity", "variant"):
        if name in frame:
            frame = frame[frame[name] == getattr(one, name)]
    known(path, "column", one.column, frame)
    for name in (one.of, *(name for name in one.against if name != BEST)):
        known(path, one.column, name, frame[one.column].unique())
    places = [name for name in frame if name not in (*NUMBERS, "quantity", "variant", one.column)]
    names = {"value": value, "std": "std", "seeds": "seeds"}
    frame = frame.assign(**{name: pd.to_numeric(frame[column]) for name, column in names.items() if column in frame})
    frame = frame[frame["value"].notna()]
    found: list[Row] = []
    for _, row in frame.groupby(places) if places else [((), frame)]:
        cells = {str(cell[one.column]): cell for _, cell in row.iterrows()}
        others = {name: cell for name, cell in cells.items() if name != one.of and {name, BEST} & {*one.against}}
        if one.of in cells and (others or not one.against):
            best = max(others.values(), key=lambda cell: -cell["value"] if one.lower else cell["value"], default=None)
            found.append((cells[one.of], best))
    return found


def difference(row: Row, one: Measured) -> float:
    """The value of a method, or by how much it is better."""
    own, other = row
    if other is None:
        return float(own["value"])
    gap = float(own["value"] - other["value"])
    return -gap if one.lower else gap


def half_width(*cells: pd.Series[float]) -> float:
    """Of the 95 % interval of a mean, or of the difference of two means with variances of their own (Welch 1947).

    NaN with one value, 0 if nothing varies.
    """
    if any(cell["seeds"] < 2 or math.isnan(cell["std"]) for cell in cells):
        return math.nan
    squares = [cell["std"] ** 2 / cell["seeds"] for cell in cells]
    if (total := sum(squares)) == 0:
        return 0.0
    freedom = total**2 / sum(square**2 / (cell["seeds"] - 1) for square, cell in zip(squares, cells, strict=True))
    return float(stats.t.ppf(0.975, freedom) * math.sqrt(total))


def weigh(paper: Paper, results: Path, experiments: Path) -> tuple[list[list[str]], list[Drawn]]:
    """Lines of the table under :data:`HEADS`, and rows of the figure; raises as :func:`evidence`."""
    lines, drawn = [], []
    for claim in paper.claims:
        rows = evidence(claim, results, experiments)
        mean = summary(claim, rows)
        lines.append([claim.claim, verdict(claim, mean), claim.remark or ours(mean, claim, claim.unit)])
        drawn += [Drawn(claim.panel, claim, row) for row in rows if claim.panel is not None]
    return lines, drawn


def verdict(claim: Claim, found: Evidence) -> str:
    """What is written of a claim, given the mean over its rows.

    Raises:
        SettingsError: the verdict is none of :data:`VERDICTS`, or *holds* although nothing is published.
    """
    if claim.margin is not None:
        within = abs(found.obtained) + found.half <= claim.margin
        decided = f"consistent with (margin ±{claim.margin:g} {claim.unit})" if within else "not decided"
        return f"{decided}{claim.verdict}"
    if not claim.verdict.startswith(VERDICTS):
        raise SettingsError(
            f"{claim.claim}: the verdict {claim.verdict!r} should start with one of {', '.join(VERDICTS)}"
        )
    if claim.verdict.startswith("holds") and not claim.remark and math.isnan(found.published):
        raise SettingsError(f"{claim.claim}: nothing is published, so it cannot hold; write 'consistent with'")
    return claim.verdict


def number(value: float, claim: Claim, signed: bool) -> str:
    """A number with the decimals of its claim."""
    value = round(value, claim.digits) + 0.0
    return f"{value:{'+' if signed and value else ''}.{claim.digits}f}".replace("-", "\N{MINUS SIGN}")


def theirs(found: Evidence, claim: Claim) -> str:
    """The published value."""
    return "unpublished" if math.isnan(found.published) else number(found.published, claim, found.signed)


def ours(found: Evidence, claim: Claim, unit: str = "") -> str:
    """The obtained value with its unit and interval."""
    if math.isnan(found.obtained):
        return NOT_RUN
    value = f"{number(found.obtained, claim, found.signed)} {unit}".rstrip()
    if math.isnan(found.half):
        return value + (", one seed" if found.seeds == 1 else ", no interval")
    low, high = (number(found.obtained + side * found.half, claim, found.signed) for side in (-1, 1))
    return f"{value} ({low}, {high})"


def described(rows: list[Drawn]) -> str:
    """The figure in words."""
    return "\n".join(
        f"{panel}: {row.name}: {'' if math.isnan(row.published) else 'published '}{theirs(row, claim)}, ours {ours(row, claim)}"
        for panel, claim, row in rows
    )


def forest_png(limits: Mapping[str, tuple[float, float]], rows: list[Drawn]) -> bytes:
    """A panel per group of rows; values beyond the ends of an axis are arrows at its edge."""
    panels: dict[str, list[Drawn]] = {}
    for row in rows:
        panels.setdefault(row.panel, []).append(row)
    heights = [len(group) for group in panels.values()]
    with paper():
        figure = Figure(figsize=(WIDTH, 0.35 + 0.5 * len(panels) + 0.25 * len(rows)), layout="constrained")
        grid = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
        for axes, (title, group) in zip(grid, panels.items(), strict=True):
            draw_panel(axes, title, group, limits.get(title))
        write_beside(grid[0], -1, "published", "ours")
        figure.legend(handles=legend_handles(grid[0], rows, limits), loc="outside upper left", ncols=4)
        return png(figure, Description=described(rows))


def legend_handles(axes: Axes, rows: list[Drawn], limits: Mapping[str, tuple[float, float]]) -> list[Any]:
    """Entries of the legend."""
    look: dict[str, Any] = {"linestyle": "none", "markersize": 5}
    halves = np.array([row.found.half for row in rows if not math.isnan(row.found.obtained)])
    handles: list[Any] = [axes.plot([], [], "D", color=PUBLISHED, label="published", **look)[0]]
    if not np.isnan(halves).all():
        handles.append(axes.errorbar([], [], xerr=[], fmt="o", color=OURS, markersize=5, label="ours, 95 % interval"))
    if np.isnan(halves).any():
        handles.append(axes.plot([], [], "o", color=OURS, mfc="white", label="ours, no interval", **look)[0])
    ends = [(limits[row.panel], row.found) for row in rows if row.panel in limits]
    if any(value < low or value > high for (low, high), found in ends for value in (found.published, found.obtained)):
        handles.append(axes.plot([], [], ">", color=GRAY, label="beyond the axis", **look)[0])
    return handles


def draw_panel(axes: Axes, title: str, rows: list[Drawn], limits: tuple[float, float] | None) -> None:
    """A line per row: the published value above, ours below, both written at the right."""
    axes.set_title(title, loc="left")
    axes.grid(axis="x")
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_yticks(range(len(rows)), [row.found.name for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    differences = all(row.found.signed for row in rows)
    low, high = limits or axis_limits([row.found for row in rows], differences)
    axes.set_xlim(low, high)
    if differences:
        axes.axvline(0, color=GRAY, linewidth=1)
    for y, (_, claim, row) in enumerate(rows):
        draw_point(axes, row.published, y - 0.17, "D", PUBLISHED, PUBLISHED)
        if not math.isnan(row.half):
            ends = np.clip([row.obtained - row.half, row.obtained + row.half], low, high)
            axes.plot(ends, [y + 0.17] * 2, color=OURS, linewidth=1.6, solid_capstyle="butt")
        draw_point(axes, row.obtained, y + 0.17, "o", OURS, "white" if math.isnan(row.half) else OURS)
        write_beside(axes, y, theirs(row, claim), ours(row, claim))


def write_beside(axes: Axes, y: float, *texts: str) -> None:
    """Text of the published value and of ours to the right of the axes."""
    where: dict[str, Any] = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points", "fontsize": 8}
    for text, left, color in zip(texts, (10, 64), (PUBLISHED, OURS), strict=True):
        axes.annotate(text, (1, y), (left, 0), va="center", color=color, annotation_clip=False, **where)


def draw_point(axes: Axes, value: float, y: float, marker: str, color: str, face: str) -> None:
    """A marker, or an arrow at the edge of the axes."""
    low, high = axes.get_xlim()
    if value < low or value > high:
        value, marker = (low, "<") if value < low else (high, ">")
    axes.plot([value], [y], marker, color=color, mfc=face, markersize=5, clip_on=False, zorder=3)


def axis_limits(rows: list[Evidence], differences: bool) -> tuple[float, float]:
    """All values and intervals, and 0 for differences, with a margin."""
    ends = [(row.published, row.obtained, row.obtained - row.half, row.obtained + row.half) for row in rows]
    values = [end for row in ends for end in row if not math.isnan(end)] + [0.0] * differences
    room = 0.06 * (max(values) - min(values) or 1.0)
    return min(values) - room, max(values) + room


def with_table(page: str, lines: list[list[str]]) -> str:
    """The page with another first table."""
    return TABLE.sub(lambda _: f"{markdown_table(HEADS, lines)}\n", page, count=1)


def main(results: Path, reports: Path, experiments: Path = EXPERIMENTS) -> None:
    """Draw the figures and write the tables."""
    pages, figures = dict[Path, str](), dict[Path, bytes]()
    for file in sorted(experiments.glob("*/published/claims.yaml")):
        claims, family = read_paper(file), file.parents[1].name
        lines, rows = weigh(claims, results, experiments)
        page = reports / f"claims_{family}.md"
        text = page.read_text(encoding="utf-8")
        if not TABLE.search(text):
            raise SettingsError(f"{page} has no table")
        pages[page] = with_table(text, lines)
        figures[reports / f"images/forest_{family}.png"] = forest_png(claims.limits, rows)
    for path, content in figures.items():
        write_bytes(path, content)
    for path, text in pages.items():
        write_text(path, text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Tables and figures of papers' claims.")
    parser.add_argument("results", type=Path, help="folder of reproduced tables")
    parser.add_argument("reports", type=Path, help="folder of the pages claims_*.md")
    given = parser.parse_args()
    guarded(lambda: main(given.results, given.reports))
