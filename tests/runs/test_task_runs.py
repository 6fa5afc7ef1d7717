"""Interrupted runs of tasks without classes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedtide.records.run_directory import RunDirectory
from small_runs import execute


@pytest.fixture
def table(tmp_path: Path) -> dict[str, Any]:
    """A dataset of four clients in three months, whose targets follow a linear rule with noise."""
    rng, count = np.random.default_rng(3), 400
    x = rng.normal(size=(count, 3))
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    frame = frame.assign(
        y=2 * x[:, 0] - x[:, 1] + 0.3 * rng.normal(size=count) - 1,
        who=rng.integers(0, 4, count),
        when=[f"2013-{month:02}-15" for month in rng.integers(1, 4, count)],
    )
    frame.to_csv(tmp_path / "rows.csv", index=False)
    named = {"label": "y", "client": "who", "time": "when", "task": "regression"}
    return {"name": "table", "file": str(tmp_path / "rows.csv"), "root": str(tmp_path / "data"), **named}


def rows(folder: Path) -> list[dict[str, str]]:
    return [{key: cell for key, cell in row.items() if key != "seconds"} for row in RunDirectory(folder).history()]


def test_an_interrupted_regression_continues_to_the_same_bits(
    small: Any, run_once: Callable[..., Any], stop_after: Any, tmp_path: Path, table: dict[str, Any]
) -> None:
    """Over months that are evaluated ahead of time."""
    settings = small(
        data=table,
        objective={"name": "huber", "delta": 2.0},
        partition="natural",
        scenario={"name": "calendar", "rounds_per_period": 2},
        evaluation={"splits": ["test", "validation"], "consistency": True},
    )
    whole = execute(settings, tmp_path, name="whole")
    assert run_once(settings, callbacks=[stop_after(3)])["state"] == "interrupted"
    again = run_once(settings)
    assert (again["state"], again["final_r2"]) == ("complete", whole["final_r2"])
    assert rows(tmp_path / "x") == rows(tmp_path / "whole")
    assert "test_r2_next" in rows(tmp_path / "x")[0]
