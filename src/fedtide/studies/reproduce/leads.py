"""By how much a method is ahead: its score minus the best of the others, averaged over a table.

Published as ACC_diff (Zhou et al. 2025, eq. 12); its headline numbers are those of FedSSG against the best baseline.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedtide.report.formats import NOTHING
from fedtide.settings.scores import ACCURACY, Score
from fedtide.studies.reproduce.results import Results, Row, Sheet

Place = tuple[str, ...]


def heading(score: Score) -> str:
    """Introduction of the table."""
    named = " (ACC_diff)" if score == ACCURACY else ""
    return f"Lead in {score.words} over the best other method{named}, averaged over the rows with a value for every method:"


def leads(results: Results) -> Sheet | None:
    """Headings and lines; None unless in some row all have a score.

    A table with several methods compares the methods of each algorithm; otherwise algorithms are compared. Published and
    obtained numbers are averaged separately, each over the rows (world, transition) in which all have one.
    """
    methods = len({cell.method for cell in results.recipe.cells}) > 1
    by = "method" if methods else "algorithm"
    score = results.recipe.score
    rows = [row for row in results.rows if row.quantity.name == score.name]
    variants = list(dict.fromkeys(row.quantity for row in rows))
    if not rows or len({getattr(row.cell, by) for row in rows}) < 2:
        return None

    def place(row: Row) -> Place:
        cell = row.cell
        return (*cell.world, cell.transition, *((cell.algorithm,) if methods else ()))

    names = list(dict.fromkeys(getattr(row.cell, by) for row in rows))

    def column(chosen: list[Row], value: Callable[[Row], float]) -> dict[str, str]:
        table: dict[Place, dict[str, float]] = {}
        for row in chosen:
            table.setdefault(place(row), {})[getattr(row.cell, by)] = value(row)
        full = [found for found in table.values() if len(found) > 1 and np.isfinite(list(found.values())).all()]
        return {name: _lead(name, [found for found in full if name in found], score.sign) for name in names}

    first = [row for row in rows if row.quantity == variants[0]]
    columns = {"published": column(first, lambda row: row.published.mean)}
    for quantity in variants:
        own = [row for row in rows if row.quantity == quantity and row.cell not in results.missing]
        columns[f"obtained, {quantity.variant}".rstrip(", ")] = column(own, lambda row: row.obtained)
    filled = {name: cells for name, cells in columns.items() if set(cells.values()) != {NOTHING}}
    if not filled:
        return None
    return [by, *filled], [[name, *(cells[name] for cells in filled.values())] for name in names]


def _lead(name: str, rows: list[dict[str, float]], sign: int) -> str:
    """Mean lead in points, and the number of rows in which it is first."""
    if not rows:
        return NOTHING
    ahead = [sign * row[name] - max(sign * value for other, value in row.items() if other != name) for row in rows]
    text = f"{np.mean(ahead):+.2f}".replace("-", "\N{MINUS SIGN}")
    return f"{text} (first in {sum(lead > 0 for lead in ahead)} of {len(rows)})"
