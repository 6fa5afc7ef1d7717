"""Runs with a detector: interrupted ones, their records, and what is refused before any work."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from commands import Fedtide, fedtide, folder, shared_data
from small_runs import execute

__all__ = ["fedtide", "folder", "shared_data"]

DRIFT = {"name": "sudden", "start": 3}


@pytest.mark.usefixtures("drop_in")
@pytest.mark.parametrize("response", ["reset_memories", "start_session"])
def test_an_interrupted_run_continues_with_its_alarms(
    small: Any, stop_after: Any, tmp_path: Path, response: str
) -> None:
    detector = {"name": "after", "losses": 2, "watch": "clients", "share": 0.5, "response": response}
    settings = small(drift=DRIFT, detector=detector, participation={"name": "all"}, initializer={"name": "average"})
    whole = execute(settings, tmp_path, "whole")
    for stopped in (1, 3, 5):
        assert execute(settings, tmp_path, "x", callbacks=[stop_after(stopped)])["state"] == "interrupted"
    again = execute(settings, tmp_path, "x")
    first, second = (pd.read_csv(tmp_path / name / "history.csv").drop(columns="seconds") for name in ("whole", "x"))
    pd.testing.assert_frame_equal(first, second, check_exact=True)
    assert first["alarm"].tolist() == [0, 1, 0, 1, 0, 1]
    assert first["session"].tolist() == ([1, 1, 2, 2, 3, 3] if response == "start_session" else [1] * 6)
    names = [f"drift_{name}" for name in ("alarms", "detected", "delay", "false_alarms")]
    assert [whole[name] for name in names] == [again[name] for name in names] == [3, 1, 0, 1]


def test_the_version_of_the_library_is_recorded(small: Callable[..., Any], tmp_path: Path) -> None:
    river = pytest.importorskip("river")
    execute(small(scenario={"rounds": 1}, detector="adwin"), tmp_path, "x")
    events = [json.loads(line) for line in (tmp_path / "x" / "events.jsonl").read_text().splitlines()]
    assert [event["versions"] for event in events if event["event"] == "libraries"] == [{"river": river.__version__}]


@pytest.mark.parametrize("command", ["run", "compare"])
def test_a_missing_library_is_one_line_before_any_work(
    fedtide: Fedtide, folder: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setitem(sys.modules, "river", None)
    found = fedtide(command, "--set", "detector=kswin")
    assert found.status == 2
    line = "fedtide: detector = kswin requires a package that is not installed (river); pip install 'fedtide[drift]'"
    assert found.err == [line]
    assert not list(folder.glob("runs/*/history.csv"))
