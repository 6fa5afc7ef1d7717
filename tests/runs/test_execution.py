"""Runs and their records: complete, interrupted, resumed, diverged, refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fedtide.core.errors import SettingsError
from fedtide.federation.saving import checkpoint
from fedtide.records.run_directory import RunDirectory
from small_runs import events, execute, history
from support import in_full

Play = Callable[..., dict[str, Any]]
KEPT = {"keep_finished": True}


def kinds(folder: Path) -> list[str]:
    """Kinds of events."""
    return [event["event"] for event in events(folder)]


def final(folder: Path) -> dict[str, Any]:
    """The last saved state."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    saved, _ = checkpoint.load(folder / "state", manifest["run_key"])
    assert saved is not None
    return in_full(saved.values)


def same(first: Any, second: Any) -> bool:
    """Equal to the bit, wall-clock apart."""
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first if key != "seconds")
    return torch.equal(first, second) if isinstance(first, torch.Tensor) else first == second


def test_a_complete_run_leaves_its_records(small: Any, run_once: Play, tmp_path: Path) -> None:
    lines: list[str] = []
    summary = run_once(small(checkpoint=KEPT), update=lines.append)
    folder = tmp_path / "x"
    rows = history(folder)
    assert (summary["state"], summary["rounds"], len(rows), len(lines)) == ("complete", 6, 6, 6)
    assert [row["round"] for row in rows] == [str(t) for t in range(1, 7)]
    assert {row["selected"] for row in rows} == {"2"}
    assert summary["final_accuracy"] == float(rows[-1]["test_accuracy"])
    assert summary["best_accuracy"] == max(float(row["test_accuracy"]) for row in rows)
    # Two clients a round, two models of 650 parameters up and down, four bytes each.
    assert [int(row["bytes_up"]) for row in rows] == [2 * 2 * 650 * 4 * t for t in range(1, 7)]
    assert (summary["bytes_up"], summary["bytes_down"]) == (2 * 2 * 650 * 4 * 6,) * 2
    model = torch.load(folder / "model.pt", weights_only=True)
    assert {name: tuple(value.shape) for name, value in model.items()} == {"head.weight": (10, 64), "head.bias": (10,)}
    assert torch.equal(torch.cat([value.reshape(-1) for value in model.values()]), final(folder)["w"])
    assert RunDirectory(folder).summary() == summary
    assert kinds(folder) == ["complete"]
    assert not [path for path in folder.rglob("*") if path.suffix == ".part"]


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [1, 3, 5])
def test_an_interrupted_run_continues_to_the_same_bits(
    small: Any, run_once: Play, stop_after: Any, tmp_path: Path, stopped: int
) -> None:
    settings = small(local={"momentum": 0.9, "momentum_scope": "client"}, checkpoint=KEPT)
    execute(settings, tmp_path, name="whole")
    summary = run_once(settings, callbacks=[stop_after(stopped)])
    assert (summary["state"], summary["rounds"]) == ("interrupted", stopped)
    assert not (tmp_path / "x" / "summary.json").exists()
    assert run_once(settings)["state"] == "complete"
    assert history(tmp_path / "x") == history(tmp_path / "whole")
    assert same(final(tmp_path / "x"), final(tmp_path / "whole"))
    assert kinds(tmp_path / "x") == ["interrupted", "resumed", "complete"]


def test_other_settings_are_refused_field_by_field(small: Any, run_once: Play, tmp_path: Path) -> None:
    run_once(small())
    changed = small(local={"lr": 0.2}, algorithm="fedavg", label="")
    with pytest.raises(SettingsError) as caught:
        run_once(changed)
    message = str(caught.value)
    assert "\n" not in message
    assert "local.lr: 0.1 -> 0.2" in message
    assert "algorithm.name: 'scaffold' -> 'fedavg'" in message
    assert "algorithm.option: 'II' -> None" in message
    assert "local.epochs" not in message
    assert json.loads((tmp_path / "x" / "settings.json").read_text(encoding="utf-8"))["local"]["lr"] == 0.1


def test_a_diverged_run_keeps_its_history_and_is_not_repeated(small: Any, run_once: Play, tmp_path: Path) -> None:
    settings = small(local={"lr": 1e30}, algorithm="fedavg")
    summary = run_once(settings)
    assert summary["state"] == "diverged"
    assert summary["message"].startswith(f"diverged in round {summary['rounds']}")
    rows = history(tmp_path / "x")
    assert [row["round"] for row in rows] == [str(t) for t in range(1, summary["rounds"] + 1)]
    assert rows[-1]["test_accuracy"] == ""
    assert not (tmp_path / "x" / "model.pt").exists()
    assert run_once(settings) == summary
    assert history(tmp_path / "x") == rows


def test_a_loss_above_the_threshold_is_divergence(small: Any, run_once: Play) -> None:
    summary = run_once(small(divergence_threshold=1e-9))
    assert (summary["state"], summary["rounds"]) == ("diverged", 1)


def test_rounds_without_evaluation_leave_cells_empty(small: Any, run_once: Play, tmp_path: Path) -> None:
    """Every fourth round and the last are tested; the columns are those of a tested round from the start."""
    chosen = small(evaluation={"every": 4, "splits": ["test", "validation"], "models": ["global", "participants"]})
    lines: list[str] = []
    summary = run_once(chosen, update=lines.append)
    rows = history(tmp_path / "x")
    assert ["%" in line for line in lines] == [False, False, False, True, True, True]
    scores = ("test_accuracy", "validation_accuracy", "test_accuracy_participants", "validation_loss_participants")
    for column in scores:
        assert [bool(row[column]) for row in rows] == [False, False, False, True, False, True], column
    assert summary["final_accuracy"] == float(rows[-1]["test_accuracy"])
    assert summary["mean_last10_accuracy"] == pytest.approx(
        (float(rows[3]["test_accuracy"]) + float(rows[5]["test_accuracy"])) / 2
    )
