"""The store below a folder: made once, refused early, closed to nobody."""

from __future__ import annotations

import multiprocessing
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from fedtide.core.errors import SettingsError
from fedtide.mirror import folder as module
from fedtide.mirror.folder import ui_command
from fedtide.mirror.store import Store, git_commit


def test_artifacts_lie_below_the_folder_and_writers_do_not_block_readers(mlruns: Path) -> None:
    store = Store(mlruns, "tests")
    experiment = store.client.get_experiment(store.experiment)
    assert (experiment.name, experiment.artifact_location) == ("tests", (mlruns / "artifacts").as_uri())
    with closing(sqlite3.connect(mlruns / "mlflow.db")) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_killed_creation_leaves_no_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    def killed(self: SqlAlchemyStore, uri: str, artifacts: str) -> None:
        Path(uri.removeprefix("sqlite:///")).write_text("half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SqlAlchemyStore, "__init__", killed)
        with pytest.raises(KeyboardInterrupt):
            Store(tmp_path, "tests")
    assert not (tmp_path / "mlflow.db").exists()


def test_a_locked_database_is_refused_at_once(mlruns: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 0)
    with closing(sqlite3.connect(mlruns / "mlflow.db", isolation_level=None)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        with pytest.raises(sqlite3.OperationalError, match="database is locked"):
            Store(mlruns, "tests")
    Store(mlruns, "tests")


def test_the_ui_is_light_and_stays_on_this_machine(mlruns: Path) -> None:
    command, environment = ui_command(mlruns, port=5050)
    assert command[1:4] == ["-m", "mlflow", "ui"]
    options = dict(zip(command[4::2], command[5::2], strict=True))
    assert options == {
        "--backend-store-uri": f"sqlite:///{mlruns.resolve()}/mlflow.db",
        "--workers": "1",
        "--host": "127.0.0.1",
        "--port": "5050",
    }
    assert environment["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] == "false"


def test_the_ui_of_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no MLflow store here"):
        ui_command(tmp_path)


def test_the_commit_is_marked_when_files_differ_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    commit = git_commit.__wrapped__
    assert commit() is None
    identity = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.org"]
    (tmp_path / "file").write_text("before")
    for command in (["init", "-q"], ["add", "file"], [*identity, "commit", "-qm", "first"], ["tag", "v1"]):
        subprocess.run(["git", *command], check=True)
    head = subprocess.run(["git", "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    assert commit() == head
    (tmp_path / "file").write_text("after")
    assert commit() == f"{head}-dirty"


def _open(folder: Path) -> str:
    return Store(folder, "tests").experiment


@pytest.mark.slow
def test_processes_that_open_a_new_store_at_once_find_one_experiment(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        found = pool.map(_open, [tmp_path / "mlruns"] * 3, chunksize=1)
    assert len(set(found)) == 1
