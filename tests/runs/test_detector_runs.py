"""Runs with a detector: interrupted ones, their records, and what is refused before any work."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from commands import Fedtide
from fedtide.world.building.build import build_timeline
from fedtide.world.presence.membership import membership
from fedtide.world.storage.prepared import load_data
from small_runs import events, execute, history, in_parts

DRIFT = {"name": "sudden", "start": 3}


@pytest.mark.slow
@pytest.mark.usefixtures("drop_in")
@pytest.mark.parametrize("response", ["reset_memories", "start_session"])
def test_an_interrupted_run_continues_with_its_alarms(
    small: Any, stop_after: Any, tmp_path: Path, response: str
) -> None:
    detector = {"name": "after", "losses": 2, "watch": "clients", "share": 0.5, "response": response}
    settings = small(drift=DRIFT, detector=detector, participation={"name": "all"}, initializer={"name": "average"})
    whole = execute(settings, tmp_path, "whole")
    again = in_parts(settings, tmp_path, stop_after, 1, 3, 5)
    rows = history(tmp_path / "whole")
    assert rows == history(tmp_path / "x")
    assert [int(row["alarm"]) for row in rows] == [0, 1, 0, 1, 0, 1]
    sessions = [1, 1, 2, 2, 3, 3] if response == "start_session" else [1] * 6
    assert [int(row["session"]) for row in rows] == sessions
    names = ["alarms", *(f"drift_{name}" for name in ("detected", "delay", "false_alarms"))]
    assert [whole[name] for name in names] == [again[name] for name in names] == [3, 1, 0, 1]


@pytest.fixture(scope="module")
def months(small: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Settings of a run on four months of a table, three rounds each; two of eight clients arrive in July."""
    folder, rng = tmp_path_factory.mktemp("months"), np.random.default_rng(3)
    who, month = np.arange(640) % 8, np.arange(640) // 8 % 4 + 5
    x = rng.normal(size=640)
    label = np.where(month < 7, x, -x) + rng.normal(size=640) > 0
    when = [f"2025-{number:02}-{1 + row % 28:02}" for row, number in enumerate(month)]
    rows = pd.DataFrame({"who": [f"S{n}" for n in who], "when": when, "x": x, "y": label.astype(int)})
    rows[(who < 6) | (month >= 7)].to_csv(folder / "rows.csv", index=False)
    source = {"name": "table", "file": str(folder / "rows.csv"), "root": str(folder / "data")}
    return lambda **changes: small(
        data={**source, "label": "y", "client": "who", "time": "when"},
        scenario={"name": "calendar", "rounds_per_period": 3, "next_period": 1},
        partition="natural",
        algorithm="fedavg",
        initializer="previous",
        participation={"name": "all"},
        client_state={"on_session_start": "keep"},
        evaluation={"clients_every": 1},
        **changes,
    )


@pytest.mark.slow
@pytest.mark.usefixtures("drop_in")
def test_sessions_that_alarms_begin_leave_the_numbers_of_the_periods_alone(
    months: Callable[..., Any], tmp_path: Path
) -> None:
    """Alarms within June and August change no training: every score of every month is the same."""
    detector = {"name": "after", "losses": 5, "response": "start_session"}
    (plain, first), (session, second) = (
        (execute(months(**chosen), tmp_path, name, log=said.append), said)
        for name, chosen, said in (("plain", {}, list[str]()), ("session", {"detector": detector}, list[str]()))
    )
    (alarms,) = (line for line in second if line not in first)
    assert alarms.endswith("seed 0: 2 alarms: round 5, 2025-06; round 10, 2025-08")
    assert [line for line in second if line != alarms] == first
    assert sum("accuracy for 2025-07" in line for line in first) == 1
    own = {name: value for name, value in session.items() if name not in ("alarms", "seconds", "run_key")}
    assert own == {name: plain[name] for name in own}
    assert {"mean_next_accuracy", "mean_next_served_accuracy"} <= own.keys()
    for name in ("history.csv", "session_scores.csv", "owner_scores.csv"):
        one, other = (
            pd.read_csv(tmp_path / run / name).drop(columns=["seconds", "alarm"], errors="ignore")
            for run in ("plain", "session")
        )
        pd.testing.assert_frame_equal(one, other, check_exact=True)
    starts = [[event["session"] for event in events(tmp_path / run, "session")] for run in ("plain", "session")]
    assert starts[0] == starts[1]


def test_who_is_new_in_a_month_stays_new_after_an_alarm_in_it(months: Callable[..., Any]) -> None:
    settings = months()
    data = load_data(settings)
    world = build_timeline(settings, data)
    alarmed = world.with_session(7)  # the second round of July
    assert alarmed.session_starts.tolist() == [0, 3, 6, 7, 9]
    for t in range(world.rounds):
        expected, found = membership(world, t), membership(alarmed, t)
        assert {group: ids.tolist() for group, ids in found.items()} == {g: ids.tolist() for g, ids in expected.items()}
    assert len(membership(alarmed, 8)["newcomers"]) == 2
    assert len(membership(alarmed, 8)["stayers"]) == 6


def test_a_missing_library_is_one_line_before_any_work(
    fedtide: Fedtide, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "river", None)
    line = "detector = kswin requires a package that is not installed (river); "
    found = fedtide("compare", "--set", "detector=kswin")
    assert found.refusal == f"{line}in a clone of fedtide: pip install '.[drift]'"
    assert not list(folder.glob("runs/*/history.csv"))
