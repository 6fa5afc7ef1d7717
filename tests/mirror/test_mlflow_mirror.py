"""MLflow holds what the run directory holds, and never gets in the way of a run."""

import csv
import json
import math
import shutil
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from filelock import FileLock
from shown import EXPERIMENT, Make, artifacts, only_run, recorded, steps, values

from fedtide.core.errors import SettingsError
from fedtide.records.run_directory import RunDirectory
from fedtide.runs.display.progress import Watch
from fedtide.runs.execution import execute
from fedtide.runs.lightning import callbacks as batches
from fedtide.runs.mlflow.mlflow_run import MlflowRun
from fedtide.runs.mlflow.store import Store
from fedtide.runs.mlflow.upload import mirror
from fedtide.runs.workspace import Workspace
from fedtide.settings.params import Params
from fedtide.settings.run import RunSettings


class Interrupt(L.Callback):
    """Presses Ctrl-C in the middle of a round, or raises at its end."""

    def __init__(self, round_: int, crash: bool = False) -> None:
        self.round, self.crash = round_, crash

    def on_train_batch_start(self, trainer: L.Trainer, module: L.LightningModule, *_: Any) -> None:
        if module.state.round == self.round - 1 and not self.crash:
            signal.raise_signal(signal.SIGINT)

    def on_train_epoch_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        if module.state.round == self.round and self.crash:
            raise MemoryError("no more of it")


def mirrored(settings: RunSettings, runs: Path, mlruns: Path, *callbacks: L.Callback, **options: Any) -> dict[str, Any]:
    workspace = Workspace(runs, None, mlruns, EXPERIMENT, options.get("parent", ""))
    return execute(settings, workspace, watch=Watch(options.get("log", print), callbacks=callbacks))


@pytest.fixture(scope="module")
def live(raw: dict[str, Any], empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Store and directory of a complete run that was mirrored while it was running."""
    folder = tmp_path_factory.mktemp("live")
    mlruns = folder / "mlruns"
    mlruns.mkdir()
    shutil.copy(empty_store, mlruns / "mlflow.db")
    summary = mirrored(Params(raw).run(), folder / "runs", mlruns, parent="a comparison")
    return mlruns, folder / "runs" / summary["run_key"]


@pytest.fixture
def directory(live: tuple[Path, Path], tmp_path: Path) -> Path:
    """A copy of that directory, for changing."""
    return Path(shutil.copytree(live[1], tmp_path / live[1].name))


@pytest.mark.slow
def test_a_complete_run_is_mirrored_number_by_number(live: tuple[Path, Path], tmp_path: Path) -> None:
    mlruns, directory = live
    store, run = only_run(mlruns)

    assert run.info.status == "FINISHED"
    assert run.info.run_name == directory.name
    with (directory / "history.csv").open(encoding="utf-8") as stream:
        columns = next(csv.reader(stream))
    filled = {column for column in columns if column != "round" and recorded(directory, column)}
    assert set(run.data.metrics) == filled
    for column in filled:
        assert values(store, run, column) == recorded(directory, column)

    tags = run.data.tags
    expected = {
        "algorithm": "fedavg",
        "initializer": "previous",
        "scenario": "static",
        "dataset": "digits",
        "seed": "0",
    }
    assert expected.items() <= tags.items()
    assert (tags["outcome"], tags["run_key"]) == ("complete", directory.name)
    parent = store.client.get_run(tags["mlflow.parentRunId"])
    assert (parent.info.run_name, parent.info.status) == ("a comparison", "FINISHED")
    assert run.data.params["local.lr"] == "0.1"
    assert run.data.params["model.name"] == "softmax_regression"

    assert artifacts(store, run) == {"settings.json", "history.csv", "per_class.csv", "model.pt"}
    model = store.client.download_artifacts(run.info.run_id, "model.pt", str(tmp_path))
    weights = torch.load(model, weights_only=True)
    assert sum(value.numel() for value in weights.values()) == 64 * 10 + 10


@pytest.mark.slow
def test_an_interrupted_run_continues_the_same_mlflow_run(settings: Make, tmp_path: Path, mlruns: Path) -> None:
    summary = mirrored(settings(), tmp_path / "runs", mlruns, Interrupt(2))
    assert (summary["state"], summary["rounds"]) == ("interrupted", 2)
    store, run = only_run(mlruns)
    assert (run.info.status, run.data.tags["outcome"]) == ("KILLED", "interrupted")
    assert steps(store, run, "train_loss") == [1, 2]

    mirrored(settings(), tmp_path / "runs", mlruns)
    store, again = only_run(mlruns)
    assert again.info.run_id == run.info.run_id
    assert (again.info.status, again.data.tags["outcome"]) == ("FINISHED", "complete")
    for metric in ("train_loss", "session"):
        assert steps(store, again, metric) == [1, 2, 3, 4]


@pytest.mark.slow
def test_repeated_rounds_are_not_logged_again(settings: Make, tmp_path: Path, mlruns: Path) -> None:
    with pytest.raises(MemoryError):  # the state of round 2 was saved, round 3 was only recorded
        mirrored(settings(), tmp_path / "runs", mlruns, Interrupt(3, crash=True))
    store, run = only_run(mlruns)
    assert (run.info.status, run.data.tags["outcome"]) == ("FAILED", "failed")
    before = steps(store, run, "train_loss")

    summary = mirrored(settings(), tmp_path / "runs", mlruns)
    store, run = only_run(mlruns)
    assert before in ([1, 2], [1, 2, 3])
    assert values(store, run, "train_loss") == recorded(tmp_path / "runs" / summary["run_key"], "train_loss")


@pytest.mark.slow
def test_a_diverged_run_is_failed_and_keeps_its_finite_history(settings: Make, tmp_path: Path, mlruns: Path) -> None:
    wild = settings(local={"steps": 3, "lr": 1e30, "batch_size": 256})
    summary = mirrored(wild, tmp_path / "runs", mlruns)
    assert summary["state"] == "diverged"
    store, run = only_run(mlruns)
    assert (run.info.status, run.data.tags["outcome"]) == ("FAILED", "diverged")
    assert steps(store, run, "session") == list(range(1, summary["rounds"] + 1))
    assert all(math.isfinite(value) for value in run.data.metrics.values())


def test_training_continues_when_the_store_cannot_be_opened_and_mirror_refuses_it(
    settings: Make, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "mlflow.db").write_bytes(b"not a database " * 100)
    lines: list[str] = []
    summary = mirrored(settings(), tmp_path / "runs", broken, log=lines.append)
    assert summary["state"] == "complete"
    reason = f"MLflow: {broken}: file is not a database; "
    assert [line for line in lines if line.startswith("MLflow")] == [
        f"{reason}training continues without it",
        f"{reason}`fedtide mlflow sync` uploads the run later",
    ]
    with pytest.raises(SettingsError, match=r"cannot be used: file is not a database$"):
        mirror([], broken, EXPERIMENT)


@pytest.mark.parametrize("repaired", [True, False])
def test_training_continues_when_the_store_fails_halfway_and_the_end_or_mirror_fills_the_gap(
    settings: Make, tmp_path: Path, mlruns: Path, monkeypatch: pytest.MonkeyPatch, repaired: bool
) -> None:
    """A table is gone from round 3 on, until the last round or until after the run."""
    monkeypatch.setattr(batches, "_SECONDS", 0.0)
    seen: list[tuple[str, int]] = []

    def rename(old: str, new: str) -> None:
        with closing(sqlite3.connect(mlruns / "mlflow.db")) as connection:
            connection.execute(f"ALTER TABLE {old} RENAME TO {new}")

    class Breaking(L.Callback):
        def on_train_batch_end(self, trainer: L.Trainer, module: L.LightningModule, *_: Any) -> None:
            if module.state.round == 3:
                rename("metrics", "hidden")
            if module.state.round == 4 and repaired:
                rename("hidden", "metrics")
                store, run = only_run(mlruns)
                seen.append((run.info.status, len(steps(store, run, "session"))))

    lines: list[str] = []
    summary = mirrored(settings(), tmp_path / "runs", mlruns, Breaking(), log=lines.append)
    assert summary["state"] == "complete"
    remarks = [line for line in lines if line.startswith("MLflow")]
    assert remarks[0] == f"MLflow: {mlruns}: no such table: metrics; training continues without it"
    directory = tmp_path / "runs" / summary["run_key"]
    if repaired:
        assert seen == [("RUNNING", 2)]
        assert len(remarks) == 1
    else:
        assert remarks[1:] == [f"MLflow: {mlruns}: no such table: metrics; `fedtide mlflow sync` uploads the run later"]
        rename("hidden", "metrics")
        mirror([directory], mlruns, EXPERIMENT)
    store, run = only_run(mlruns)
    assert (run.info.status, run.data.tags["outcome"]) == ("FINISHED", "complete")
    assert values(store, run, "train_loss") == recorded(directory, "train_loss")


@pytest.mark.slow
def test_mlflow_can_be_rebuilt_from_run_directories(live: tuple[Path, Path], mlruns: Path) -> None:
    _, run = only_run(live[0])
    mirror([live[1]], mlruns, EXPERIMENT)
    store, rebuilt = only_run(mlruns)
    for part in ("metrics", "params"):
        assert getattr(rebuilt.data, part) == getattr(run.data, part)
    ours = {key: value for key, value in run.data.tags.items() if not key.startswith("mlflow.")}
    assert ours.items() <= rebuilt.data.tags.items()
    assert (rebuilt.info.status, rebuilt.info.run_name) == (run.info.status, run.info.run_name)
    assert values(store, rebuilt, "drift") == recorded(live[1], "drift")


def test_rebuilding_skips_runs_in_progress_and_other_folders(directory: Path, tmp_path: Path, mlruns: Path) -> None:
    (tmp_path / "empty").mkdir()
    lines: list[str] = []
    with FileLock(str(directory / ".lock")):
        mirror([directory, tmp_path / "empty"], mlruns, EXPERIMENT, lines.append)
    assert lines == [
        f"{directory.name}: skipped, in use by another process",
        "empty: skipped, not a run directory",
        "MLflow: 0 runs written, 0 up to date",
    ]
    assert Store(mlruns, EXPERIMENT).runs("") == []


@pytest.mark.slow
def test_more_rounds_than_one_call_takes_are_all_written(directory: Path, mlruns: Path) -> None:
    with (directory / "history.csv").open(encoding="utf-8") as stream:
        header, first, *_ = csv.reader(stream)
    with (directory / "history.csv").open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([header, *([str(round_), *first[1:]] for round_ in range(1, 251))])
    summary = RunDirectory(directory).summary()
    assert summary is not None
    RunDirectory(directory).finish(summary)
    mirror([directory], mlruns, EXPERIMENT)
    store, run = only_run(mlruns)
    for column in ("train_loss", "session"):
        assert steps(store, run, column) == list(range(1, 251))


@pytest.mark.slow
def test_a_damaged_run_is_skipped_with_one_line_when_rebuilding(directory: Path, mlruns: Path) -> None:
    history = directory / "history.csv"
    history.write_bytes(history.read_bytes()[:-3])
    lines: list[str] = []
    mirror([directory], mlruns, EXPERIMENT, lines.append)
    assert len(lines) == 2
    assert lines[0].startswith(f"{directory.name}: not uploaded, {directory}: history.csv has ")
    assert lines[1] == "MLflow: 0 runs written, 0 up to date, 1 not uploaded"


def test_settings_that_differ_late_differ_in_mlflow(directory: Path, mlruns: Path) -> None:
    long = {"label": "x" * 5990 + "a", "erased": list(range(1500)), "deep": {"er": None}, "word": "plain"}
    (directory / "settings.json").write_text(json.dumps(long))
    mirror([directory], mlruns, EXPERIMENT)
    store, run = only_run(mlruns)
    params = run.data.params
    assert (params["label"], params["deep.er"], params["word"]) == (long["label"], "null", "plain")
    assert json.dumps(long["erased"]).startswith(params["erased"].split("...")[0])
    assert 5980 < len(params["erased"]) <= 6000
    other = directory.with_name("other")
    shutil.copytree(directory, other)
    (other / "settings.json").write_text(json.dumps({**long, "erased": [*range(1499), 7]}))
    mirror([other], mlruns, EXPERIMENT)
    (second,) = store.runs("attributes.run_name = 'other'")
    assert second.data.params["erased"] != params["erased"]
    assert second.data.params["label"] == params["label"]


def test_a_parameter_that_was_cut_shorter_does_not_stop_an_upload(directory: Path, mlruns: Path) -> None:
    (directory / "settings.json").write_text(json.dumps({"label": "x" * 400}))
    MlflowRun(store := Store(mlruns, EXPERIMENT), RunDirectory(directory)).begin("")
    with closing(sqlite3.connect(mlruns / "mlflow.db")) as connection, connection:
        connection.execute("UPDATE params SET value = substr(value, 1, 250)")
    lines: list[str] = []
    mirror([directory], mlruns, EXPERIMENT, lines.append)
    assert lines == ["MLflow: 1 runs written, 0 up to date"]
    (run,) = store.runs("")
    assert run.info.status == "FINISHED"
