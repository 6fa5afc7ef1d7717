"""Trials of a search in MLflow, and what is imported for neither."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedtide.compare import Place
from fedtide.params import Params
from fedtide.tracking.run_directory import RunDirectory
from fedtide.tracking.store import Store
from fedtide.tuning import study
from fedtide.tuning.study import tune


def test_trials_are_gathered_below_their_search(
    raw: dict[str, Any], tmp_path: Path, mlruns: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study, "_UNPRUNED_TRIALS", 1)
    space = {"local.lr": {"low": 0.001, "high": 1.0, "log": True}}
    params = Params({**raw, "tune": {"trials": 5, "workers": 1, "space": space}})
    name = tune(params, Place(tmp_path / "runs", None, mlruns, "tests"), tmp_path / "tuning").study

    store = Store(mlruns, "tests")
    children = store.runs(f"tags.mlflow.parentRunId = '{store.parent(name)}'")
    assert len(children) == 5
    assert {run.info.status for run in children} == {"FINISHED"}
    states = {path.name: (RunDirectory(path).summary() or {})["state"] for path in (tmp_path / "runs").iterdir()}
    assert {run.info.run_name: run.data.tags["outcome"] for run in children} == states
    assert set(states.values()) == {"complete", "pruned"}


@pytest.mark.slow
def test_training_imports_neither_mlflow_nor_optuna() -> None:
    code = "import sys, fedtide.run, fedtide.compare; print(sorted({'mlflow', 'optuna'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
