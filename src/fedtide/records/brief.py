"""Records in a few lines, as a script's or a notebook's last expression shows them."""

from __future__ import annotations

import pandas as pd

from fedtide.settings.scores import RECORDED, main_score

ROWS = 30
"""Most methods that are listed."""


def title(runs: pd.DataFrame) -> str:
    """How many runs there are, and in which states."""
    states = ", ".join(f"{count} {state}" for state, count in runs["state"].value_counts(sort=False).items())
    return f"{len(runs)} run{'s' * (len(runs) != 1)}: {states}"


def table(runs: pd.DataFrame, history: pd.DataFrame, method: list[str]) -> pd.DataFrame:
    """For each method its runs and their last main score: mean, and standard deviation if there are several."""
    scores = [score for score in map(main_score, RECORDED) if f"test_{score.name}" in history]
    score = next((one for one in scores if history[f"test_{one.name}"].notna().any()), main_score())
    if (column := f"test_{score.name}") in history:
        runs = runs.assign(last=runs["key"].map(history.dropna(subset=[column]).groupby("key")[column].last()))
    else:
        runs = runs.assign(last=float("nan"))
    grouped = runs.groupby(method, sort=False)["last"]
    found = pd.DataFrame({"runs": grouped.size(), f"final test {score.words}": grouped.mean(), "std": grouped.std()})
    return found.dropna(axis=1, how="all").round(4).reset_index()
