"""How much of each published table has been reproduced, from the files in a results folder."""

import csv
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedtide.core.errors import SettingsError
from fedtide.report.formats import NOTHING
from fedtide.studies.reproduce.recipe import Cell, Recipe, profiles
from fedtide.studies.reproduce.reproduce import experiments
from fedtide.studies.reproduce.results import markdown_table, signed

HEADS = [
    *("experiment", "profile", "cells", "seeds", "rounds", "quantity", "mean difference", "mean absolute difference"),
    "settings",
]

CURRENT, OTHER_SEEDS, EARLIER, UNKNOWN = "current", "other seeds", "earlier settings", "not recorded"
"""Which settings produced the numbers: those of the experiment as it is now; the same with fewer or more seeds; other settings,
perhaps the defaults of an earlier version; or unknown, in a file from before settings were recorded.
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
        settings: :data:`CURRENT`, :data:`OTHER_SEEDS`, :data:`EARLIER` or :data:`UNKNOWN`; empty without results.
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


def status(results: Path, root: Path | None = None) -> list[Status]:
    """Every experiment, under each profile that has results, or under its default profile; several if settings differ.

    Raises:
        SettingsError: a file was not written by `fedtide reproduce`.
    """
    found = []
    for name, path in experiments(root).items():
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
    parts = [
        "# Reproduction status of published tables",
        "How much of each published table has been reproduced; written by `fedtide reproduce --status`. The "
        "linked pages list every cell with its spread over seeds.",
        "* **Differences** are reproduced minus published values, in the unit of the quantity (percentage points "
        "for accuracy), over the cells that have both.\n"
        "* **Rounds** such as `80 of 800` mark partial runs, which do not reproduce the table.\n"
        f"* **Settings**: `{CURRENT}` numbers come from the settings and seeds in the experiment's file, "
        f"`{OTHER_SEEDS}` ones from the same settings with fewer or more seeds, `{EARLIER}` ones from different "
        f"settings or from an earlier version's defaults; `{UNKNOWN}` ones are older than this record.",
        markdown_table(HEADS, rows),
    ]
    return "\n\n".join(parts) + "\n"


def _parts(recipe: Recipe, results: Path) -> list[Status]:
    quantity = recipe.table.measure.quantities[0]
    file = results / recipe.name / f"{recipe.profile}.csv"
    cells = {cell.values: cell for cell in recipe.cells}
    found: dict[str, list[tuple[int, int, float]]] = {}
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    for row in csv.DictReader(lines):
        try:
            count, mine = int(row["seeds"]), (row["quantity"], row["variant"]) == (quantity.name, quantity.variant)
            numbers = (count, int(row.get("rounds") or 0), float(row["difference"] or "nan"))
            if mine and count:
                found.setdefault(_made_with(recipe, cells, row), []).append(numbers)
        except (KeyError, ValueError, TypeError):
            raise SettingsError(f"{file}: not written by `fedtide reproduce`; move or delete it") from None
    scenario = recipe.runs(recipe.cells[0], recipe.seeds[0])[0].scenario
    table, planned = Path(recipe.name) / f"{recipe.profile}.md", int(getattr(scenario, "rounds", 0))
    parts = []
    for settings in (CURRENT, OTHER_SEEDS, EARLIER, UNKNOWN):
        if rows := found.get(settings):
            seeds, rounds, gaps = (list(column) for column in zip(*rows, strict=True))
            ends = (min(seeds), max(seeds)), (min(rounds), max(rounds))
            differences = [gap for gap in gaps if math.isfinite(gap)]
            parts.append(Status(recipe, len(rows), *ends, planned, quantity.title, differences, table, settings))
    return parts or [Status(recipe, 0, (0, 0), (0, 0), planned, quantity.title, [], None, "")]


def _made_with(recipe: Recipe, cells: dict[tuple[str, ...], Cell], row: dict[str, str]) -> str:
    """Which settings produced a row."""
    if not row.get("settings"):
        return UNKNOWN
    cell = cells.get(tuple(row[name] for name in recipe.columns))
    if cell is None:
        return EARLIER
    if recipe.identity(cell) == row["settings"]:
        return CURRENT
    first = _first_seeds(recipe, int(row["seeds"]))
    return OTHER_SEEDS if recipe.identity(cell, first) == row["settings"] else EARLIER


def _first_seeds(recipe: Recipe, count: int) -> tuple[int, ...]:
    """The first seeds of an experiment; beyond its own, those that follow them."""
    own = recipe.seeds[:count]
    return (*own, *(own[-1] + 1 + place for place in range(count - len(own))))


def _span(ends: tuple[int, int]) -> str:
    low, high = ends
    return NOTHING if high == 0 else str(low) if low == high else f"{low} to {high}"
