"""A run that continues with appended rows is killed, and continues again."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from attempt import Attempt, Moment

from fedtide.mirror.check import check_run
from records import same_records

PARAMS = """
data: {name: table, root: ., file: rows.csv, client: who, time: when, unit: days, classes: [u, v], grows: true,
  split: {period: 10}}
scenario: {name: calendar, period: 10, rounds_per_period: 3}
partition: {name: natural}
participation: {name: fixed, fraction: 0.5}
model: {name: logistic}
algorithm: {name: scaffold}
local: {amount: 2, unit: steps, batch_size: 8, momentum: 0.5, momentum_scope: client}
federation: {at_session: keep}
engine: {accelerator: cpu, workers: 1}
tracking: {mlflow: false}
"""


def rows(periods: int) -> str:
    """Rows of four clients; the first by name comes in the last of four periods."""
    lines = [
        f"{'aaron' if day > 33 and n == 0 else 'bcde'[n]},{day},{(7 * day + 3 * n) % 11},{'uv'[(day * n + day) % 2]}"
        for day in range(10 * periods)
        for n in range(4)
    ]
    return "\n".join(["who,when,x,label", *lines, ""])


@pytest.fixture
def grown(tmp_path: Path) -> Path:
    """A folder with a run `run` on three periods, to whose table a fourth was appended, and `whole` on all four."""
    (tmp_path / "params.yaml").write_text(PARAMS)
    (tmp_path / "rows.csv").write_text(rows(3))
    assert Attempt(tmp_path).end() == 0
    (tmp_path / "rows.csv").write_text(rows(4))
    assert Attempt(tmp_path, name="whole").end() == 0
    return tmp_path


def test_kills_while_a_run_continues_change_nothing(grown: Path) -> None:
    """At the operations by which records and states return to an earlier period, and in the rounds after it."""
    states = set[str]()
    returning = [Moment(operation=number, place=("before", "after")[number % 2]) for number in range(0, 24, 3)]
    for moment in (*returning, Moment(7, 2), Moment(8, 4), Moment(10, 3), Moment(11, 5)):
        attempt = Attempt(grown, moments=(moment,))
        assert attempt.end() == -signal.SIGKILL, attempt.lines
        found = check_run(grown / "runs/run")
        assert found.problems == (), moment
        states.add(found.state)
    assert states == {"intact", "unfinished"}
    assert Attempt(grown).end() == 0
    same_records(grown / "runs/run", grown / "runs/whole")
    for name in ("periods.csv", "timeline.npz"):
        assert (grown / "runs/run" / name).read_bytes() == (grown / "runs/whole" / name).read_bytes()
