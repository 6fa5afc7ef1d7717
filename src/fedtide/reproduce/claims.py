"""What a paper claims, against tables of results: published and obtained differences between methods, with 95 % intervals.

Tables keep the mean and the standard deviation of a cell, not its seeds, so intervals are unpaired (Welch 1947). Rows of a
table share seeds: the interval of a mean over rows has the mean of their half-widths, which is wide enough however
strongly rows vary together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pydantic import Field

from fedtide.core.errors import SettingsError, nearest
from fedtide.core.plugins import SettingsModel
from fedtide.records.statistics import Sample, half_width
from fedtide.settings.overrides import deep_merge
from fedtide.settings.parse import parse
from fedtide.settings.yaml_files import read_mapping

BEST = "best"
"""Of ``against``: in every row of a table the best of all others."""

_NUMBERS = ("published", "published_std", "obtained", "std", "difference", "seeds", "rounds", "settings", "mean")
_PLACED = ("quantity", "variant")


class Measured(SettingsModel):
    """What decides a claim: a value of one method, or its difference from others, averaged over the rows of a table."""

    results: str | None = Field(None, description="CSV file below the results, without suffix; null: not run")
    published: str | None = Field(
        None, description="CSV file with published values, below the experiments; default: those in the results"
    )
    quantity: str = Field("accuracy", description="column `quantity`")
    variant: str = Field("", description="column `variant`")
    column: str = Field("algorithm", description="column with the names of the methods")
    of: str = Field(description="a method")
    against: tuple[str, ...] = Field(
        (), description="others, of which the best one in every row counts; [best]: all; none: the value itself"
    )
    where: dict[str, tuple[str, ...]] = Field({}, description="column -> its values in the rows that count")
    lower: bool = Field(False, description="less is better: the sign of a difference is turned")
    spread: bool = Field(True, description="whether there is an interval; not for medians")
    scale: float = Field(1.0, description="factor of the obtained value, e.g. 100 for points")


class Claim(SettingsModel):
    """A claim and our verdict on it."""

    claim: str = Field(description="what is claimed")
    verdict: str = Field(description="whether it holds here")
    unit: str = Field("points", description="of the numbers")
    digits: int = Field(1, ge=0, le=6, description="decimals")
    panel: str | None = Field(None, description="title of the figure's panel; null: in the table alone")
    measured: dict[str, Any] = Field({}, description="what all rows have in common")
    rows: dict[str, dict[str, Any]] = Field({}, description="name -> the rest of what is measured")
    remark: str = Field("", description="stands in place of the number, where results/ has none")


class Paper(SettingsModel):
    """A paper's claims."""

    title: str = Field(description="heading of its section")
    limits: dict[str, tuple[float, float]] = Field({}, description="panel -> ends of its axis; default: all values")
    claims: tuple[Claim, ...] = Field(min_length=1)


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


def read_paper(path: Path) -> Paper:
    """Read a file of claims."""
    paper: Paper = parse(Paper, read_mapping(path), path.name)
    return paper


def evidence(claim: Claim, results: Path, experiments: Path) -> list[Evidence]:
    """The numbers of every row of a claim.

    Args:
        results, experiments: folders of reproduced tables and of published ones.

    Raises:
        SettingsError: no such file, column or method.
    """
    found = []
    for name, rest in claim.rows.items():
        one: Measured = parse(Measured, deep_merge(claim.measured, rest), f"{claim.claim}, {name}")
        own = _obtained(one, results) if one.results else (math.nan, math.nan, 0)
        found.append(Evidence(name, _published(one, results, experiments), *own, bool(one.against) or _paired(one)))
    return found


def summary(claim: Claim, rows: Sequence[Evidence]) -> Evidence:
    """The mean over the rows of a claim; see the module for its interval."""
    if not rows:
        return Evidence(claim.claim, math.nan, math.nan, math.nan, 0, False)
    columns = ([row.published for row in rows], [row.obtained for row in rows], [row.half for row in rows])
    published, obtained, half = (float(np.mean(column)) for column in columns)
    return Evidence(claim.claim, published, obtained, half, min(row.seeds for row in rows), rows[0].signed)


def _paired(one: Measured) -> bool:
    """Whether the results are differences already, paired over seeds or months, with their intervals."""
    return one.results is not None and Path(one.results).name == "comparisons"


def _read(path: Path, where: Mapping[str, tuple[str, ...]]) -> pd.DataFrame:
    """The rows of a CSV file that count, as text."""
    if not path.is_file():
        raise SettingsError(f"no file {path}")
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    for column, values in where.items():
        if column not in frame:
            raise SettingsError(nearest(f"{path}: no column {column!r}", column, map(str, frame)))
        for value in values:
            if value not in set(frame[column]):
                raise SettingsError(nearest(f"{path}: no {column} {value!r}", value, sorted(set(frame[column]))))
        frame = frame[frame[column].isin(values)]
    return frame


def _obtained(one: Measured, results: Path) -> tuple[float, float, int]:
    """Value, half-width of its interval and number of seeds."""
    path = results / f"{one.results}.csv"
    frame = _read(path, one.where)
    if _paired(one):
        frame = frame[frame["method"] == one.of]
        if len(frame) != 1:
            raise SettingsError(f"{path}: {len(frame)} rows of {one.of} instead of one; choose with `where`")
        low, high, difference = (one.scale * float(frame[name].iloc[0]) for name in ("low", "high", "difference"))
        return difference, (high - low) / 2, int(frame["pairs"].iloc[0])
    frame = _of_quantity(frame, one)
    numbers = {name: pd.to_numeric(frame[name]) for name in ("obtained", "std", "seeds")}
    rows = _rows(frame, one, numbers["obtained"], path)
    if not rows:
        return math.nan, math.nan, 0
    samples = {line: Sample(*cell) for line, *cell in zip(frame.index, *numbers.values(), strict=True)}
    halves = [half_width(*(samples[line] for line in row if line is not None)) for row in rows]
    values = [_difference(row, numbers["obtained"], one) for row in rows]
    seeds = min(int(samples[line].seeds) for row in rows for line in row if line is not None)
    half = one.scale * float(np.mean(halves)) if one.spread else math.nan
    return one.scale * float(np.mean(values)), half, seeds


def _published(one: Measured, results: Path, experiments: Path) -> float:
    if one.published is not None:
        path, column = experiments / f"{one.published}.csv", "mean"
    elif one.results is not None and not _paired(one):
        path, column = results / f"{one.results}.csv", "published"
    else:
        return math.nan
    frame = _of_quantity(_read(path, one.where if one.published is None else _known(one.where, path)), one)
    values = pd.to_numeric(frame[column])
    rows = _rows(frame, one, values, path)
    return float(np.mean([_difference(row, values, one) for row in rows])) if rows else math.nan


def _known(where: Mapping[str, tuple[str, ...]], path: Path) -> dict[str, tuple[str, ...]]:
    """Conditions on columns that a file of published values has: without a column, its numbers hold for all values."""
    columns = pd.read_csv(path, nrows=0).columns
    return {column: values for column, values in where.items() if column in columns}


def _of_quantity(frame: pd.DataFrame, one: Measured) -> pd.DataFrame:
    for name in _PLACED:
        if name in frame and ("obtained" in frame or name == "quantity"):
            frame = frame[frame[name] == getattr(one, name)]
    return frame


_Row = tuple[Any, Any]
"""Lines of a method and of the one that it is compared with, None for none."""


def _rows(frame: pd.DataFrame, one: Measured, values: pd.Series[float], path: Path) -> list[_Row]:
    """The rows of the table in which both have a value."""
    if one.column not in frame:
        raise SettingsError(nearest(f"{path}: no column {one.column!r}", one.column, map(str, frame)))
    known = sorted(set(frame[one.column]))
    for name in (one.of, *(name for name in one.against if name != BEST)):
        if name not in known:
            raise SettingsError(nearest(f"{path}: no {one.column} {name!r}", name, known))
    places = [name for name in frame if name not in (*_NUMBERS, *_PLACED, one.column)]
    frame = frame[values.notna()]
    found: list[_Row] = []
    for _, row in frame.groupby(places) if places else [((), frame)]:
        lines = {str(name): line for name, line in zip(row[one.column], row.index, strict=True)}
        others = [name for name in lines if name != one.of and (name in one.against or BEST in one.against)]
        if one.of in lines and (others or not one.against):
            best = max(others, key=lambda name: -values[lines[name]] if one.lower else values[lines[name]], default="")
            found.append((lines[one.of], lines.get(best)))
    return found


def _difference(row: _Row, values: pd.Series[float], one: Measured) -> float:
    own, other = row
    if other is None:
        return float(values[own])
    gap = float(values[own] - values[other])
    return -gap if one.lower else gap
