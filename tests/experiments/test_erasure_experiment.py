"""The scripts of the report on erasure, on digits."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

import fedtide
from fedtide.settings.params import Params

ROOT = Path(__file__).parents[2]
SETTINGS = "experiments/erasure/fmnist/returning_fmnist.yaml"
COLUMNS = {  # of the table -> of the history, in the round that counts
    "step": ("erased_memory_left_step", 45),
    "end_of_session": ("erased_excess", 48),
    "returning": ("erased_excess_start", 49),
    "gap": ("erased_gap_left", 64),
}


@pytest.mark.slow
def test_what_is_left_of_a_client_that_returns(here: Path, script: Callable[..., str]) -> None:
    """It asks in round 44, and its group returns in round 49, with session 7."""
    chosen = ["data={name: digits}", "model={name: mlp, widths: [8]}", "local.steps=1", "compare.seeds=[0, 1]"]
    chosen += [
        "compare.algorithms=[continue, retrain_keep]",
        "compare.initializers=[average]",
        "evaluation.client_samples=50",
    ]
    history = fedtide.compare(Params.read(SETTINGS, chosen), workers=1).history
    script("erasure/table.py", SETTINGS, "out", "7", *chosen)
    table = pd.read_csv("out/erased.csv", header=[0, 1], index_col=[0, 1]).loc["average"]
    at = history.set_index(["label", "round"])
    for label in ("continue", "retrain_keep"):
        for name, (column, round_) in COLUMNS.items():
            values = at.loc[(label, round_), column]
            assert table.loc[label, (name, "mean")] == pytest.approx(values.mean(), abs=1e-4)
            assert table.loc[label, (name, "std")] == pytest.approx(values.std(), abs=1e-4)
    returning = table.loc["continue", ("returning", "mean")]
    assert table["without_erasure", "mean"].tolist() == [returning, returning]
    assert (
        table.loc["retrain_keep", ("end_of_session", "mean")] == 0 < table.loc["continue", ("end_of_session", "mean")]
    )
    sessions = pd.read_csv("out/sessions.csv", header=[0, 1], index_col=[0, 1, 2])
    assert sessions.index.get_level_values("session").unique().tolist() == [6, 7, 8]
    assert sessions.loc[("average", "continue", 7), ("start", "mean")] == returning


@pytest.mark.slow
def test_recorded_contributions_are_those_of_the_report_and_what_is_missing_is_trained(
    here: Path, script: Callable[..., str]
) -> None:
    """Without a client that is in no cohort nothing changes; without another one its place is empty, or another's."""
    shutil.copytree(ROOT / "results/erasure_redraw", "results")
    recorded = pd.read_csv("results/redraw.csv")
    printed = script("erasure/redraw.py", "results")
    by_client = recorded.groupby("client")[["hole", "redraw"]]
    page = (ROOT / "docs/reports/erasure.md").read_text(encoding="utf-8")
    spread, between = by_client.std().mean(), by_client.mean().std()
    assert f"{spread['hole']:.3f} nats with empty places and {spread['redraw']:.3f} with redrawn cohorts" in page
    assert f"({between['hole']:.3f} and {between['redraw']:.3f})" in page
    assert "clients whose means differ by two standard errors: 4" in printed
    assert "For 4 of 20 clients the two means differ by more than two standard errors" in page
    recorded[recorded["seed"] < 9].to_csv("results/redraw.csv", index=False)
    script("erasure/redraw.py", "results", "data={name: digits}", "scenario.rounds=2", "local.steps=1")
    again = pd.read_csv("results/redraw.csv")
    assert again[again["seed"] < 9].equals(recorded[recorded["seed"] < 9])
    new = again[again["seed"] == 9]
    assert new["client"].tolist() == list(range(20))
    drawn = new[(new["hole"] != 0) | (new["redraw"] != 0)]
    assert 5 <= len(drawn) <= 10
    assert (drawn["hole"] != drawn["redraw"]).all()
