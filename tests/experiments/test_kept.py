"""How long ago participants arrived, and what is kept of those that are new."""

import runpy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from support import deal, timeline

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "experiments/uplink/kept.py"))
NEW, relative, since_arrival = (SCRIPT[name] for name in ("NEW", "relative", "since_arrival"))

HERE = [(0, 1), (0, 1), (0, 2), (0, 1, 2), (1, 2), (0, 1)]
"""Clients present by round."""


def test_ages_and_stays_follow_the_timeline(tmp_path: Path) -> None:
    world = timeline(deal((2, 2, 2)), [{client: client for client in clients} for clients in HERE])
    world.save(tmp_path / "timeline.npz", "x")
    rows = pd.DataFrame(
        [(t + 1, client) for t, clients in enumerate(HERE) for client in clients], columns=["round", "client"]
    )
    rows = rows.sample(frac=1.0, random_state=0)
    found = rows.join(since_arrival(tmp_path / "timeline.npz", rows)).set_index(["client", "round"]).sort_index()
    assert found.loc[0, "age"].tolist() == [0, 1, 2, 3, 0]
    assert found.loc[0, "stay"].tolist() == [0, 0, 0, 0, 2]
    assert found.loc[1, "age"].tolist() == [0, 1, 0, 1, 2]
    assert found.loc[1, "stay"].tolist() == [0, 0, 2, 2, 2]
    assert found.loc[2, "age"].tolist() == [0, 1, 2]
    assert found.loc[2, "stay"].tolist() == [1, 1, 1]


def test_kept_shares_are_over_those_of_the_residents_of_the_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = ["round", "age", "stay", "kept", "clip_factor", "attacker"]
    rows = pd.DataFrame(
        [
            (1, 50, 0, 0.8, np.nan, 0),
            (1, NEW, 1, 0.4, 0.5, 0),  # a resident by now: 0.2
            (1, 3, 1, 0.5, 0.4, 0),
            (1, 0, 3, 1.0, np.nan, 0),
            (1, 2, 1, 0.25, np.nan, 1),
            (2, 51, 0, 0.5, np.nan, 0),
            (2, 3, 1, 0.1, np.nan, 0),
            (3, 3, 1, 0.9, np.nan, 0),  # with no resident
        ],
        columns=columns,
    )
    ages = rows[["age", "stay"]]
    monkeypatch.setitem(relative.__globals__, "since_arrival", lambda file, own: ages.loc[own.index])
    rows = rows.drop(columns=["age", "stay"]).assign(key="a", label="mean", initializer="previous", seed=0)
    found = relative(rows, tmp_path)
    kept = found.set_index(["group", "age"])["kept"].to_dict()
    assert kept == {
        ("Newcomers", 3): pytest.approx((0.2 + 0.1) / (0.5 + 0.5)),
        ("Returners", 0): pytest.approx(1.0 / 0.5),
        ("Attackers", 0): pytest.approx(0.25 / 0.5),
    }
