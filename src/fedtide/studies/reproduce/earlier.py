"""Numbers of earlier calls, read back from a results folder: of cells whose runs are not available here."""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from fedtide.core.errors import SettingsError
from fedtide.studies.reproduce.measures import Quantity
from fedtide.studies.reproduce.recipe import Cell, Recipe


class Kept(NamedTuple):
    """An obtained number: mean or median over the seeds, spread, number of seeds, rounds of the measured session."""

    obtained: float
    std: float
    seeds: int
    rounds: int


@dataclass(frozen=True)
class Earlier:
    """Numbers of an earlier call with the same settings and all seeds, though perhaps by other code.

    Attributes:
        numbers: by cell and quantity. lines: accuracy in percent by round, by cell.
    """

    numbers: dict[tuple[Cell, Quantity], Kept] = field(default_factory=dict)
    lines: dict[Cell, pd.Series[float]] = field(default_factory=dict)


def read_earlier(recipe: Recipe, table: Path, curves: Path) -> Earlier:
    """Read the files of ``csv_text`` and ``curves_csv``: cells whose settings are the same; empty without the files.

    Raises:
        SettingsError: a file was not written by `fedtide reproduce`.
    """
    found = Earlier()
    if not table.is_file():
        return found
    names = {cell.values: cell for cell in recipe.cells}
    try:
        with table.open(newline="", encoding="utf-8") as stream:
            for row in csv.DictReader(stream):
                cell = names.get(tuple(row[name] for name in recipe.columns))
                whole = cell is not None and int(row["seeds"]) == len(recipe.seeds)
                if cell is not None and whole and row["settings"] == recipe.identity(cell):
                    obtained, std = (float(row[name] or "nan") for name in ("obtained", "std"))
                    kept = Kept(obtained, std, int(row["seeds"]), int(row["rounds"]))
                    found.numbers[cell, Quantity(row["quantity"], row["variant"])] = kept
        if curves.is_file():
            frame = pd.read_csv(curves, index_col="round")
            for cell, name in ((cell, recipe.heading(cell)) for cell, _ in found.numbers):
                if name in frame:
                    found.lines[cell] = frame[name].dropna()
    except (KeyError, ValueError, TypeError):
        raise SettingsError(f"{table}: not written by `fedtide reproduce`; move or delete it") from None
    return found
