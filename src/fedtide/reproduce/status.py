"""How much of every published table has been reproduced, from the files in a results folder."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedtide.core.errors import SettingsError
from fedtide.report.formats import NOTHING
from fedtide.reproduce.recipe import Cell, Recipe, profiles
from fedtide.reproduce.reproduce import EXPERIMENTS, experiments
from fedtide.reproduce.results import markdown_table, signed

HEADS = [
    *("experiment", "profile", "cells", "seeds", "rounds", "quantity", "mean difference", "mean absolute difference"),
    "settings",
]

TODAY, OTHERS, UNKNOWN = "today's", "others", "not recorded"
"""Which settings numbers were made with: those of the experiment as it is; others, perhaps those of an earlier version, or
with other seeds; a file from before they were recorded does not say.
"""


@dataclass(frozen=True)
class Status:
    """One experiment under one profile: its numbers that were made with the same settings.

    Attributes:
        recipe: the experiment. cells: how many have a number.
        seeds, rounds: fewest and most behind one; (0, 0) without any. planned: rounds of a run, 0 for runs of sessions.
        quantity: that is compared, the first one of the experiment.
        differences: obtained minus published numbers, of the cells that have both.
        table: the file for reading, from the results folder; None if there are no results.
        settings: :data:`TODAY`, :data:`OTHERS` or :data:`UNKNOWN`; empty without results.
    """

    recipe: Recipe
    cells: int
    seeds: tuple[int, int]
    rounds: tuple[int, int]
    planned: int
    quantity: str
    differences: list[float]
    table: Path | None
    settings: str


def status(results: Path, root: Path = EXPERIMENTS) -> list[Status]:
    """Every experiment, under each profile that has results, or under its default profile; several if settings differ.

    Raises:
        SettingsError: there are no experiments here, or a file was not written by `fedtide reproduce`.
    """
    known = experiments(root)
    if not known:
        raise SettingsError(f"no experiments here ({root}/<family>/<name>.yaml); go to the project's folder")
    found = []
    for name, path in known.items():
        known_profiles = profiles(path)
        done = [profile for profile in known_profiles if (results / name / f"{profile}.csv").is_file()]
        found += [part for profile in done or known_profiles[:1] for part in _parts(Recipe(path, profile), results)]
    return found


def lines(found: list[Status]) -> list[list[str]]:
    """Text under :data:`HEADS`."""
    return [
        [
            item.recipe.name,
            item.recipe.profile,
            f"{item.cells} of {len(item.recipe.cells)}",
            _span(item.seeds),
            _span(item.rounds) + (f" of {item.planned}" if 0 < item.rounds[0] < item.planned else ""),
            item.quantity,
            signed(float(np.mean(item.differences))) if item.differences else NOTHING,
            f"{np.mean(np.abs(item.differences)):.2f}" if item.differences else NOTHING,
            item.settings or NOTHING,
        ]
        for item in found
    ]


def page(found: list[Status]) -> str:
    """The same as Markdown, with links to the tables."""
    rows = [
        [name if item.table is None else f"[{name}]({item.table.as_posix()})", *rest]
        for item, (name, *rest) in zip(found, lines(found), strict=True)
    ]
    return (
        "\n\n".join(
            [
                "# Published tables, reproduced",
                "Written by `fedtide reproduce --status`. Differences are obtained minus published numbers, in the unit of "
                "the quantity (accuracy: points), over the cells that have both; a table's own page has every cell with its "
                "spread. Fewer rounds than planned are a beginning, not a reproduction. Settings: today's are those of the "
                "experiment's file; numbers made with others, with other seeds, or by a version with other settings are "
                "counted apart.",
                markdown_table(HEADS, rows),
            ]
        )
        + "\n"
    )


def _parts(recipe: Recipe, results: Path) -> list[Status]:
    quantity = recipe.table.measure.quantities[0]
    file = results / recipe.name / f"{recipe.profile}.csv"
    cells = {cell.values: cell for cell in recipe.cells}
    found: dict[str, list[tuple[int, int, float]]] = {}
    for row in _rows(file):
        try:
            count, mine = int(row["seeds"]), (row["quantity"], row["variant"]) == (quantity.name, quantity.variant)
            numbers = (count, int(row.get("rounds") or 0), float(row["difference"] or "nan"))
            if mine and count:
                found.setdefault(_made_with(recipe, cells, row), []).append(numbers)
        except (KeyError, ValueError, TypeError):
            raise SettingsError(f"{file}: not written by `fedtide reproduce`; move it away") from None
    table, planned = Path(recipe.name) / f"{recipe.profile}.md", _planned(recipe)
    parts = []
    for settings, rows in sorted(found.items(), key=lambda item: (TODAY, OTHERS, UNKNOWN).index(item[0])):
        seeds, rounds, gaps = (list(column) for column in zip(*rows, strict=True))
        differences = [gap for gap in gaps if math.isfinite(gap)]
        facts = (_ends(seeds), _ends(rounds), planned, quantity.title, differences, table, settings)
        parts.append(Status(recipe, len(rows), *facts))
    return parts or [Status(recipe, 0, (0, 0), (0, 0), planned, quantity.title, [], None, "")]


def _made_with(recipe: Recipe, cells: dict[tuple[str, ...], Cell], row: dict[str, str]) -> str:
    """Which settings a row was made with."""
    if not row.get("settings"):
        return UNKNOWN
    cell = cells.get(tuple(row[name] for name in recipe.columns))
    return TODAY if cell is not None and recipe.identity(cell) == row["settings"] else OTHERS


def _planned(recipe: Recipe) -> int:
    scenario = recipe.runs(recipe.cells[0], recipe.seeds[0])[0].scenario
    return int(getattr(scenario, "rounds", 0))


def _ends(values: list[int]) -> tuple[int, int]:
    return (min(values), max(values)) if values else (0, 0)


def _rows(file: Path) -> list[dict[str, str]]:
    if not file.is_file():
        return []
    with file.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def _span(ends: tuple[int, int]) -> str:
    low, high = ends
    return NOTHING if high == 0 else str(low) if low == high else f"{low} to {high}"
