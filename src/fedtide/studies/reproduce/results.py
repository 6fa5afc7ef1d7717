"""Obtained next to published numbers: rows, and their CSV, Markdown and terminal tables."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from rich.box import SIMPLE
from rich.table import Table

from fedtide.core.errors import SettingsError
from fedtide.report.formats import NOTHING
from fedtide.settings.run import RunSettings
from fedtide.settings.scores import ACCURACY, Score
from fedtide.studies.reproduce.earlier import Earlier, Kept
from fedtide.studies.reproduce.history import History
from fedtide.studies.reproduce.measures import Quantity
from fedtide.studies.reproduce.published import Number
from fedtide.studies.reproduce.recipe import Cell, Recipe

NEVER = "never"
"""Shown for what was not reached in a session of T rounds; a number of rounds is shown as ``>T`` instead."""

Sheet = tuple[list[str], list[list[str]]]
"""Headings, and lines of cells."""

Find = Callable[[RunSettings], History | None]
"""The history of a complete run, or None."""


@dataclass(frozen=True)
class Row:
    """One quantity of one cell.

    Attributes:
        published: number and spread, NaN where there is none.
        obtained: over the available seeds; NaN without any. std: sample standard deviation (divisor n - 1).
        seeds: number of available seeds. rounds: of the measured session; 0 without a seed.
    """

    cell: Cell
    quantity: Quantity
    published: Number
    obtained: float
    std: float
    seeds: int
    rounds: int

    @property
    def difference(self) -> float:
        return self.obtained - self.published.mean


@dataclass(frozen=True)
class Results:
    """The table so far.

    Attributes:
        rows: of all cells, in the order of the recipe. missing: seeds that are missing, by cell.
        kept: cells with numbers of an earlier call, whose runs are not available here.
    """

    recipe: Recipe
    rows: list[Row]
    missing: dict[Cell, list[int]]
    kept: set[Cell]


def tabulate(recipe: Recipe, find: Find, earlier: Earlier) -> Results:
    """Measure all cells whose runs are complete; for the others keep the numbers of an earlier call over all seeds."""
    measure, quantities = recipe.table.measure, recipe.table.measure.quantities
    rows: list[Row] = []
    missing: dict[Cell, list[int]] = {}
    kept: set[Cell] = set()
    for cell in recipe.cells:
        parts: list[list[float]] = []
        absent: list[int] = []
        rounds = 0
        for seed in recipe.seeds:
            histories = [find(settings) for settings in recipe.runs(cell, seed)]
            number = recipe.table.transitions[cell.transition]
            try:
                sessions = [history.session(number) for history in histories if history is not None]
            except SettingsError as error:
                raise SettingsError(f"{recipe.name}, transition {cell.transition}: {error}") from None
            if len(sessions) < len(histories):
                absent.append(seed)
            else:
                parts.append(measure.measure(sessions[0], sessions[-1]))
                rounds = len(sessions[0].score)
        if absent and all((cell, quantity) in earlier.numbers for quantity in quantities):
            kept.add(cell)
        elif absent:
            missing[cell] = absent
        for place, quantity in enumerate(quantities):
            values = np.array([part[place] for part in parts], dtype=np.float64)
            std = float(values.std(ddof=1)) if len(values) > 1 and np.isfinite(values).all() else math.nan
            numbers = Kept(measure.center(values) if len(values) else math.nan, std, len(values), rounds)
            if cell in kept:
                numbers = earlier.numbers[cell, quantity]
            published = recipe.published.get((cell, quantity.name), Number(math.nan, math.nan))
            rows.append(Row(cell, quantity, published, *numbers))
    return Results(recipe, rows, missing, kept)


def frame(results: Results) -> pd.DataFrame:
    """A row per cell and quantity."""
    columns = ("published", "published_std", "obtained", "std", "difference", "seeds", "rounds", "settings")
    rows = [
        (
            *(*row.cell.values, *row.quantity, *row.published, row.obtained, row.std, row.difference),
            *(row.seeds, row.rounds, results.recipe.identity(row.cell) if row.seeds else ""),
        )
        for row in results.rows
    ]
    return pd.DataFrame(rows, columns=[*results.recipe.columns, "quantity", "variant", *columns])


def csv_text(results: Results) -> str:
    """:func:`frame` as CSV."""
    return frame(results).to_csv(index=False, float_format="%.10g", lineterminator="\n")


def json_rows(results: Results) -> list[dict[str, Any]]:
    """:func:`frame` with ``None`` where there is no number and ``"inf"`` for never, without differences and settings."""
    table = frame(results).rename(columns={"quantity": "name"}).drop(columns=["difference", "settings"])
    rows = table.astype(object).where(table.notna(), None).replace(math.inf, "inf").to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in rows]


def markdown(results: Results, command: str) -> str:
    """The table with all that is needed to read and reproduce it."""
    recipe, table = results.recipe, results.recipe.table
    seeds = ", ".join(map(str, recipe.seeds))
    parts = [
        f"# {table.title}",
        f"{table.source.paper}, {table.source.table}. Profile `{recipe.profile}`.",
        *([table.note.strip()] if table.note else []),
        f"    {command}",
        f"Seeds {seeds}; ± is the sample standard deviation over seeds (divisor n - 1)."
        if len(recipe.seeds) > 1
        else f"Seed {seeds}, so there is no spread over seeds.",
        markdown_table(*_cells(results)),
    ]
    if summary := _summary(results):
        parts += ["Mean absolute difference from the published values, over the complete cells:"]
        parts += [markdown_table(*summary)]
    if ahead := leads(results):
        parts += [leads_heading(recipe.score), markdown_table(*ahead)]
    if results.kept:
        count = f"{len(results.kept)} of the {len(recipe.cells)} cells {'was' if len(results.kept) == 1 else 'were'}"
        parts += [f"{count} measured by an earlier call with the same settings."]
    if results.missing:
        parts += ["Missing runs:", "\n".join(f"* {line}" for line in missing_lines(results))]
    return "\n\n".join(parts) + "\n"


def printable(results: Results) -> list[Table]:
    """The table, and the mean absolute differences, for a terminal."""
    title = f"{results.recipe.table.title} ({results.recipe.profile})"
    tables = [_rich(title, *_cells(results), left=len(results.recipe.distinguishing))]
    if summary := _summary(results):
        tables.append(_rich("Mean absolute difference from the published values", *summary, left=1))
    return tables


def missing_lines(results: Results) -> list[str]:
    """The missing runs; one line for all transitions of a run."""
    columns = [name for name in results.recipe.columns if name != "transition"]
    lines: dict[str, None] = {}
    for cell, seeds in results.missing.items():
        place = zip(columns, (*cell.world, cell.algorithm, cell.method), strict=True)
        named = " ".join(f"{name}={value}" for name, value in place)
        lines[f"{named} (seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))})"] = None
    return list(lines)


def _cells(results: Results) -> tuple[list[str], list[list[str]]]:
    """Headings, and one line of text per cell."""
    published = {row.quantity.name for row in results.rows if not math.isnan(row.published.mean)}
    places = list(results.recipe.distinguishing.values())
    heads, names = [results.recipe.columns[place] for place in places], []
    for quantity in results.recipe.table.measure.quantities:
        if quantity.name in published and quantity.name not in names:
            heads.append(f"{quantity.name}, published")
        names.append(quantity.name)
        heads += [quantity.title, *(["difference"] if quantity.name in published else [])]
    by_cell: dict[Cell, list[Row]] = {cell: [] for cell in results.recipe.cells}
    for row in results.rows:
        by_cell[row.cell].append(row)
    lines = []
    for cell, rows in by_cell.items():
        line, shown = [cell.values[place] for place in places], set()
        for row in rows:
            never = f">{row.rounds}" if row.quantity.name == "rounds" and row.rounds else NEVER
            if row.quantity.name in published and row.quantity.name not in shown:
                line.append(_number(row.published.mean, row.published.std, never))
            shown.add(row.quantity.name)
            seeds = len(results.recipe.seeds)
            mark = "" if row.seeds in (0, seeds) else f" ({row.seeds} of {seeds})"
            line.append(_number(row.obtained, row.std, never) + mark)
            if row.quantity.name in published:
                line.append(signed(row.difference))
        lines.append(line)
    return heads, lines


def _summary(results: Results) -> tuple[list[str], list[list[str]]] | None:
    """Mean absolute difference per method and quantity, over complete cells; None if there is nothing to compare.

    Per algorithm in a table of one method.
    """
    complete = [row for row in results.rows if row.cell not in results.missing and math.isfinite(row.difference)]
    quantities = list(dict.fromkeys(row.quantity for row in complete))
    if not quantities:
        return None
    by = "method" if len({cell.method for cell in results.recipe.cells}) > 1 else "algorithm"
    lines = []
    for name in [*dict.fromkeys(getattr(row.cell, by) for row in complete), "all"]:
        line = [name]
        for quantity in quantities:
            shown = [row for row in complete if row.quantity == quantity and name in ("all", getattr(row.cell, by))]
            gaps = [abs(row.difference) for row in shown]
            line.append(f"{np.mean(gaps):.2f} ({len(gaps)} cell{'s' if len(gaps) > 1 else ''})" if gaps else NOTHING)
        lines.append(line)
    return [by, *(quantity.title for quantity in quantities)], lines


def _number(value: float, std: float, never: str = NEVER) -> str:
    if math.isnan(value):
        return NOTHING
    if math.isinf(value):
        return never
    return _text(value) if math.isnan(std) else f"{_text(value)} ± {_text(std)}"


def _text(value: float) -> str:
    return f"{value:.2f}" if value == 0 or 0.1 <= abs(value) < 1e5 else f"{value:.2g}"


def signed(value: float) -> str:
    """A difference with its sign."""
    return f"{value:+.2f}".replace("-", "\N{MINUS SIGN}") if math.isfinite(value) else NOTHING


def markdown_table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    rule = ["---"] * len(heads)
    return "\n".join(f"| {' | '.join(line)} |" for line in (heads, rule, *lines))


def _rich(title: str, heads: Sequence[str], lines: Sequence[Sequence[str]], left: int) -> Table:
    table = Table(title=title, box=SIMPLE, pad_edge=False)
    for place, head in enumerate(heads):
        table.add_column(head, justify="left" if place < left else "right")
    for line in lines:
        table.add_row(*line)
    return table


def leads_heading(score: Score) -> str:
    """Introduction of the table of leads."""
    named = " (ACC_diff)" if score == ACCURACY else ""
    return f"Lead in {score.words} over the best other method{named}, averaged over the rows with a value for every method:"


def leads(results: Results) -> Sheet | None:
    """The lead of each method over the best other one (ACC_diff, Zhou et al. 2025, eq. 12); None unless all have a score.

    A table with several methods compares the methods of each algorithm; otherwise algorithms are compared. Published and
    obtained numbers are averaged separately, each over the rows (world, transition) in which all have one.
    """
    score, methods = results.recipe.score, len({cell.method for cell in results.recipe.cells}) > 1
    by = "method" if methods else "algorithm"
    rows = [row for row in results.rows if row.quantity.name == score.name]
    variants = list(dict.fromkeys(row.quantity for row in rows))
    names = list(dict.fromkeys(getattr(row.cell, by) for row in rows))
    if len(names) < 2:
        return None

    def column(numbers: list[tuple[Cell, float]]) -> dict[str, str]:
        table: dict[tuple[str, ...], dict[str, float]] = {}
        for cell, number in numbers:
            place = (*cell.world, cell.transition, *((cell.algorithm,) if methods else ()))
            table.setdefault(place, {})[getattr(cell, by)] = score.sign * number
        full = [found for found in table.values() if len(found) > 1 and np.isfinite(list(found.values())).all()]
        return {name: _lead(name, [found for found in full if name in found]) for name in names}

    columns = {"published": column([(row.cell, row.published.mean) for row in rows if row.quantity == variants[0]])}
    for quantity in variants:
        own = [row for row in rows if row.quantity == quantity and row.cell not in results.missing]
        columns[f"obtained, {quantity.variant}".rstrip(", ")] = column([(row.cell, row.obtained) for row in own])
    filled = {name: cells for name, cells in columns.items() if set(cells.values()) != {NOTHING}}
    return ([by, *filled], [[name, *(cells[name] for cells in filled.values())] for name in names]) if filled else None


def _lead(name: str, rows: list[dict[str, float]]) -> str:
    """Mean lead in points, and the number of rows in which it is first."""
    if not rows:
        return NOTHING
    ahead = [row[name] - max(value for other, value in row.items() if other != name) for row in rows]
    return f"{signed(float(np.mean(ahead)))} (first in {sum(lead > 0 for lead in ahead)} of {len(rows)})"
