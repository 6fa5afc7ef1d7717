"""Runs of somebody else's: to look at them imports none of the modules that their settings name."""

import json
import sys

import pytest

import fedtide as package
from commands import sets

MODULE = """
from pathlib import Path

import lightning as L
from torch import nn

Path(__file__).with_name("imported").touch()


class Net(nn.Sequential):
    def __init__(self, classes):
        super().__init__(nn.Flatten(), nn.Linear(64, classes))


class Watching(L.Callback):
    pass
"""
SETTINGS = sets(
    "model={name: module, path: 'somebodys:Net'}",
    "engine.callbacks=[{path: 'somebodys:Watching'}]",
    "tracking.loggers=[{path: 'somebodys:Watching'}]",
)


@pytest.fixture
def runs(fedtide, folder, monkeypatch):
    """A finished run and an interrupted one, whose modules are no longer imported."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    (folder / "somebodys.py").write_text(MODULE)
    made = (*SETTINGS[:-2], "--set", "checkpoint.keep_finished=true")
    assert fedtide("compare", "-q", *made, "--set", "compare={seeds: [0, 1], workers: 1}").status == 0
    assert (folder / "imported").exists()
    (folder / "imported").unlink()
    (next(iter(folder.glob("runs/*-s1-*"))) / "summary.json").unlink()
    monkeypatch.delitem(sys.modules, "somebodys")
    return folder / "runs"


@pytest.mark.slow
def test_looking_at_runs_imports_nothing_that_they_name(fedtide, folder, runs):
    mlflow = ("--set", "tracking={mlflow: true, model: true}")
    grid = ("--set", "compare={seeds: [0, 1]}")
    for command in (("check",), ("report", *SETTINGS, *grid), ("mlflow", "sync", *mlflow)):
        called = fedtide(*command)
        assert called.status == 0, called.err
    (older, _) = sorted(path for path in runs.glob("*-s?-*"))
    facts = json.loads((older / "manifest.json").read_text())
    del facts["label"], facts["hash"]
    facts["run_key"] = "older"
    (older / "manifest.json").write_text(json.dumps(facts))
    called = fedtide("mlflow", "sync", *mlflow)
    assert called.status == 1
    assert called.err == [
        f"{older.name}: not uploaded, its manifest.json has no label, so another version wrote it",
        "MLflow: 0 runs written, 1 up to date, 1 not uploaded",
    ]
    records = package.load(runs)
    assert len(records.runs) == 2
    assert "somebodys" not in sys.modules
    assert not (folder / "imported").exists()
