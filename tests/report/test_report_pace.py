"""The table and figures of runs in one session: pace, gates, agreement of local and global progress."""

import runpy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from synthetic_runs import changed, write_run

from fedtide.records import frames as records
from fedtide.report.formats import NOTHING, times
from fedtide.report.sections.pace import sheet

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "experiments/fedssg/participants.py"))
loss_changes = SCRIPT["loss_changes"]


def run(root: Path, label: str, accuracy: list[float], seed: int = 0, clients: pd.DataFrame | None = None) -> Path:
    path = write_run(root, label, seed=seed, sessions=1, rounds=len(accuracy))
    if clients is not None:
        clients.to_csv(path / "clients.csv", index=False)
    return changed(path, test_accuracy=accuracy)


def participants() -> pd.DataFrame:
    """Clients 0 and 1 in turns over six rounds; client 1's loss goes up while the global one falls."""
    at = np.arange(1, 7)
    client = (at - 1) % 2
    local = np.where(client == 0, 1 / at, at / 10)
    return pd.DataFrame({"round": at, "client": client, "gate": at / 6, "local_loss": local, "global_loss": 2.0 / at})


def test_pace_of_two_methods(tmp_path: Path) -> None:
    dirs = [run(tmp_path, "fedavg", [0.1, 0.2, 0.6, 0.8]), run(tmp_path, "fedssg", [0.5, 0.7, 0.9, 0.7])]
    (made,) = sheet(records.load(dirs), 2, 0.7, "fedavg")
    assert made.headings == ["Last 2 rounds, %", "Minus fedavg, points", "Rounds to 70 %", "Speed-up"]
    assert dict(made.rows) == {
        ("fedavg", "previous"): ["70.00 ± 10.00", "+0.00", "4", times(1)],
        ("fedssg", "previous"): ["80.00 ± 10.00", "+10.00", "2", times(2)],
    }


def test_a_target_out_of_reach_counts_with_all_rounds(tmp_path: Path) -> None:
    dirs = [run(tmp_path, "fedavg", [0.1, 0.2, 0.3, 0.4]), run(tmp_path, "fedssg", [0.5, 0.7, 0.9, 0.7])]
    rows = dict(sheet(records.load(dirs), 2, 0.7, "fedavg")[0].rows)
    assert [cells[2:] for cells in rows.values()] == [[">4", times(1)], ["2", times(2)]]
    alone = dict(sheet(records.load(dirs[1:]), 2, 0.95, "fedavg")[0].rows)
    assert list(alone.values()) == [["80.00 ± 10.00", NOTHING, ">4", NOTHING]]


def test_the_median_seed_may_be_one_that_never_gets_there(tmp_path: Path) -> None:
    curves = ([0.1, 0.9], [0.2, 0.3], [0.3, 0.4])
    dirs = [run(tmp_path, "fedavg", accuracy, seed) for seed, accuracy in enumerate(curves)]
    (cells,) = dict(sheet(records.load(dirs), 1, 0.8, "fedavg")[0].rows).values()
    assert cells == ["53.33 ± 0.00", "+0.00", ">2", times(1)]


@pytest.mark.parametrize(("other", "median"), [([0.1, 0.1, 0.1, 0.9], "2.5"), ([0.1] * 4, ">2.5")])
def test_the_median_of_two_seeds_is_their_mean(other: list[float], median: str, tmp_path: Path) -> None:
    dirs = [run(tmp_path, "fedavg", accuracy, seed) for seed, accuracy in enumerate([[0.9] * 4, other])]
    (cells,) = dict(sheet(records.load(dirs), 1, 0.8, "fedavg")[0].rows).values()
    assert cells[2] == median


def test_where_sessions_change_there_is_no_such_table(tmp_path: Path) -> None:
    assert sheet(records.load([write_run(tmp_path, sessions=2)]), 5, 0.5, "fedavg") == []
    assert sheet(records.load([write_run(tmp_path, seed=1, sessions=1)]), 5, float("nan"), "fedavg") == []


def test_changes_are_between_consecutive_selections_of_a_client() -> None:
    changes = loss_changes(participants().assign(key="a"))
    assert changes["round"].tolist() == [3, 4, 5, 6]
    assert changes["global"].tolist() == pytest.approx([2 / t - 2 / (t - 2) for t in (3, 4, 5, 6)])
    assert changes["local"].tolist() == pytest.approx([1 / 3 - 1, 0.2, 1 / 5 - 1 / 3, 0.2])
