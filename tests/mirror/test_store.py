"""The store below a folder: made once, refused early, closed to nobody."""

import getpass
import importlib
import os
import pwd
import sqlite3
import subprocess
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from fedtide.core.errors import SettingsError
from fedtide.runs import mlflow as package
from fedtide.runs.mlflow import store as module
from fedtide.runs.mlflow.store import Store, git_commit, reason, ui_command


@pytest.mark.slow
def test_artifacts_lie_below_the_folder_and_writers_do_not_block_readers(mlruns: Path) -> None:
    store = Store(mlruns, "tests")
    experiment = store.client.get_experiment(store.experiment)
    assert (experiment.name, experiment.artifact_location) == ("tests", (mlruns / "artifacts").as_uri())
    with closing(sqlite3.connect(mlruns / "mlflow.db")) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.parametrize("name", ["50 % #1?", "Q1%20 Büro a@b:c"])
def test_a_folder_may_have_any_name(name: str, empty_store: Path, tmp_path: Path) -> None:
    """Its database is the one in it, for MLflow and its UI; nothing is written elsewhere."""
    mlruns = tmp_path / name / "mlruns"
    mlruns.mkdir(parents=True)
    (mlruns / "mlflow.db").write_bytes(empty_store.read_bytes())
    store = Store(mlruns, "tests")
    store.client.create_run(store.experiment)
    with closing(sqlite3.connect(mlruns / "mlflow.db")) as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (1,)
    assert store.uri in ui_command(mlruns)[0]
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_mlflow_finds_a_name_and_a_home_for_a_user_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> None:
        raise KeyError("getpwuid(): uid not found: 12345")

    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME", "HOME"):
        monkeypatch.setenv(variable, "")
        monkeypatch.delenv(variable)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    importlib.reload(package)
    assert (getpass.getuser(), Path.home()) == (str(os.getuid()), Path(tempfile.gettempdir()))


@pytest.mark.slow
def test_a_creation_that_is_cut_off_leaves_no_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: Path, part: Path) -> None:
        part.write_text("half")
        raise KeyboardInterrupt

    monkeypatch.setattr(module.shutil, "copyfile", interrupted)
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


def test_an_sqlite_file_is_a_store(mlruns: Path) -> None:
    (mlruns / "mlflow.db").rename(mlruns / "mine.sqlite")
    store = Store(mlruns / "mine.sqlite", "tests")
    assert (store.uri, store.folder) == (f"sqlite+pysqlite:///{mlruns.resolve()}/mine.sqlite", mlruns.resolve())
    assert ui_command(mlruns / "mine.sqlite")[0][5] == store.uri
    assert not (mlruns / "mlflow.db").exists()


@pytest.mark.slow
def test_a_deleted_experiment_is_restored_by_the_command_in_the_line(
    mlruns: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(mlruns, "tests")
    store.client.delete_experiment(store.experiment)
    with pytest.raises(SettingsError, match="the experiment 'tests' is deleted; restore it with") as caught:
        Store(mlruns, "tests")
    assert reason(caught.value).endswith("or set another tracking.experiment")
    _, *command = str(caught.value).split("`")[1].split()
    assert command[:3] == ["mlflow", "experiments", "restore"]


def test_a_store_of_another_version_of_mlflow_has_both_cures(mlruns: Path) -> None:
    with closing(sqlite3.connect(mlruns / "mlflow.db")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = 'ffffffffffff'")
    with pytest.raises(
        SettingsError, match=r"if an older one, `mlflow db upgrade sqlite\+pysqlite:///.*, if a newer one, `pip install"
    ):
        Store(mlruns, "tests")


def test_the_ui_is_light_and_stays_on_this_machine(mlruns: Path) -> None:
    command, environment = ui_command(mlruns, port=5050)
    assert command[1:4] == ["-m", "mlflow", "ui"]
    options = dict(zip(command[4::2], command[5::2], strict=True))
    assert options == {
        "--backend-store-uri": f"sqlite+pysqlite:///{mlruns.resolve()}/mlflow.db",
        "--workers": "1",
        "--host": "127.0.0.1",
        "--port": "5050",
    }
    assert environment["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] == "false"


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
