"""Runs with requests to erase clients: what their records say of each."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fedtide.records.measures.erasure import MEASURES
from small_runs import events, execute, history, in_parts

SESSIONS = {"name": "sessions", "num_devices": 4, "num_sessions": 4, "rounds_per_session": 2}


@pytest.fixture
def erased(small: Any) -> Any:
    """Settings of a run of four sessions of two rounds, in which a client is erased in the third one, or earlier."""

    def make(eraser: str, client: int = 0, at: int = 5, **changes: Any) -> Any:
        given = {"name": eraser, "clients": [client], "at": at}
        fixed = {"scenario": SESSIONS, "partition": "dirichlet_equal", "participation": {"name": "all"}}
        return small(**{**fixed, "algorithm": "fedavg", "initializer": "average", "erase": [given], **changes})

    return make


@pytest.mark.slow
def test_summary_and_event_of_a_request(erased: Any, tmp_path: Path) -> None:
    found = execute(erased("rollback"), tmp_path, "x")
    rows = pd.read_csv(tmp_path / "x" / "history.csv")
    for name in MEASURES:
        known = rows[f"erased_{name}"].dropna()
        assert found[f"erased_{name}"] == (known.iloc[-1] if len(known) else None)
    costs = [name for name in rows if name.startswith("erase_")]
    assert {name: found[name] for name in costs} == rows[costs].iloc[-1].to_dict()
    ends, starts = rows["erased_excess"], rows["erased_excess_start"]
    assert found["erased_resurrection"] == starts[6] - ends[5]
    (event,) = events(tmp_path / "x", "request")
    own = {name: found[f"erase_{name}"] for name in event["costs"]}
    told = {"eraser": "rollback", "clients": [0], "first_touch": 1, "back_to": 0, "store": "drop", "sessions": [2]}
    assert event == {"event": "request", "round": 6, **told, "costs": own}


@pytest.mark.slow
def test_ends_of_sessions_are_measured_whatever_else_is(erased: Any, tmp_path: Path) -> None:
    """Otherwise what the next session brings back would be unknown."""
    rare = execute(erased("rollback", evaluation={"every": 8}), tmp_path, "rare")
    often = execute(erased("rollback"), tmp_path, "often")
    assert rare["erased_resurrection"] == often["erased_resurrection"]
    known = pd.read_csv(tmp_path / "rare" / "history.csv").dropna(subset=["erased_excess"])
    assert known["round"].tolist() == [6, 8]


def test_a_client_that_left_no_trace_is_told_and_not_measured(erased: Any, tmp_path: Path) -> None:
    """In the first round the server chooses another one."""
    settings = erased("rollback", client=1, at=1, participation={"name": "fixed", "fraction": 0.25})
    execute(settings, tmp_path, "x")
    (event,) = events(tmp_path / "x", "request")
    assert event == {"event": "request", "round": 2, "eraser": "rollback", "clients": [1], "first_touch": None}
    assert {row["erased_excess"] for row in history(tmp_path / "x")} == {""}


@pytest.mark.slow
def test_a_resumed_run_tells_of_each_request_once(erased: Any, stop_after: Any, tmp_path: Path) -> None:
    settings = erased("fed_eraser")
    whole = execute(settings, tmp_path, "whole")
    again = in_parts(settings, tmp_path, stop_after, 5, 6, 7)
    told = [events(tmp_path / name, "request") for name in ("whole", "x")]
    assert len(told[0]) == 1
    assert told[0] == told[1]
    assert history(tmp_path / "whole") == history(tmp_path / "x")
    measured, remeasured = ({name: run[name] for name in run if name.startswith("eras")} for run in (whole, again))
    assert measured == remeasured
