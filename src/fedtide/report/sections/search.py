"""The Pareto front of a search for accuracy at low communication cost: figure and table of its trials."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from fedtide.core.errors import SettingsError
from fedtide.report.charts.pictures import Drawing
from fedtide.report.formats import Scale
from fedtide.report.parts import figures, sheets
from fedtide.report.tables.sheets import Sheet
from fedtide.settings.scores import capitalized, score_of

_SETTINGS_FROM = 5
"""Columns of the table before those of the settings: run, outcome, metric, kappa, front."""


def search_front(folder: Path) -> tuple[Sheet, Drawing]:
    """Table and figure of the Pareto front that ``fedtide tune`` has written into a folder; a SettingsError without one."""
    table, picture = folder / "front.csv", folder / "front.png"
    if not (table.is_file() and picture.is_file()):
        raise SettingsError(f"{folder}: no front.csv and front.png; `fedtide tune` with tune.cost = kappa writes them")
    trials = pd.read_csv(table, dtype=str, keep_default_na=False)
    metric = trials.columns[2]
    kept = trials[trials["front"] == "true"].drop_duplicates([metric, "kappa"])
    kept = kept.sort_values("kappa", key=lambda cells: cells.astype(float))
    score = score_of(metric)
    named, scale = f"validation {score.words}", Scale(score.share)
    sheet = Sheet(
        f"Search for {named} at low communication cost",
        f"Pareto front of {len(trials)} trials; of equal ones the first. Kappa: mean over the rounds; 1 is an exchange after "
        f"every local step. {capitalized(named)}: over the rounds of tune.over, one seed.",
        ["Kappa", scale.heading(capitalized(named))],
        [(_names(row), [_short(row["kappa"]), _value(float(row[metric]), scale)]) for _, row in kept.iterrows()],
        names=("Trial", "Settings"),
    )
    title = f"{capitalized(named)} over communication cost"
    return sheet, Drawing("search_front", title, "Dots: trials; blue: the Pareto front.", picture.read_bytes())


def _names(row: pd.Series[str]) -> tuple[str, str]:
    settings = [f"{key} = {_short(cell)}" for key, cell in list(row.items())[_SETTINGS_FROM:]]
    return str(int(row["run"].rpartition("-")[2])), ", ".join(settings)


def _short(cell: str) -> str:
    try:
        return f"{float(cell):.4g}"
    except ValueError:
        return cell or "null"


def _value(value: float, scale: Scale) -> str:
    return scale.value(value) if scale.share else f"{value:.4g}"


sheets.add(90, lambda source: [search_front(source.contents.tuning)[0]] if source.contents.tuning else [])
figures.add(250, lambda source: [search_front(source.contents.tuning)[1]] if source.contents.tuning else [])
