"""DVC's experiments: metrics and plots are compared, settings are varied, a queue is worked off."""

import csv
import json
import runpy
import subprocess
from pathlib import Path

import pytest
from dvc.repo import Repo

from fedtide.core.errors import SettingsError

PROJECT = Path(__file__).parents[2]
PLACES = runpy.run_path(str(PROJECT / "pipeline/places.py"))


@pytest.mark.parametrize(
    ("folder", "root"),
    [
        ("/home/me/project", "/home/me/project"),
        ("/home/me/project/.dvc/tmp/exps/tmpab12", "/home/me/project"),
        ("/home/me/project/.dvc/tmp/exps/standalone/tmpab12/", "/home/me/project"),
        ("/home/me/.dvc/tmp/project", "/home/me/.dvc/tmp/project"),
    ],
)
def test_runs_are_kept_in_the_project_that_dvc_copied(folder, root):
    assert PLACES["project"](Path(folder)) == Path(root)


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """The temporary copy of a project in git, as the working directory; the project itself."""
    copy = tmp_path / ".dvc/tmp/exps/tmpab12"
    copy.mkdir(parents=True)
    (tmp_path / ".gitignore").write_text("/.dvc/\n/runs/\n")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", ".gitignore"], cwd=tmp_path, check=True)
    monkeypatch.chdir(copy)
    for name in ("FEDTIDE_MLRUNS", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_mlflows_place_is_that_of_the_project(copied, monkeypatch):
    assert PLACES["mlruns"]() == str(copied / "mlruns")
    for named, wanted in (
        ("sqlite:///mlflow.db", f"sqlite:///{copied}/mlflow.db"),
        ("sqlite:////data/mlflow.db", "sqlite:////data/mlflow.db"),
        ("http://127.0.0.1:5000", "http://127.0.0.1:5000"),
        ("databricks:profile", "databricks:profile"),
    ):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", named)
        assert PLACES["mlruns"]() == wanted
    monkeypatch.chdir(copied)
    assert PLACES["mlruns"]() == "databricks:profile"


def test_an_experiment_without_an_untracked_file_says_so(copied, monkeypatch):
    def fails():
        raise SettingsError("data.file = 'orders.csv': no such file")

    (copied / "orders.csv").touch()
    (copied / "runs").mkdir()
    (copied / "algorithms").mkdir()
    (copied / "algorithms/mine.py").touch()
    message = r"no such file; .* tracks \(not algorithms/, orders\.csv\): .*--copy-paths PATH`$"
    with pytest.raises(SettingsError, match=message):
        PLACES["explained"](fails)
    monkeypatch.chdir(copied)
    with pytest.raises(SettingsError, match=r"no such file$"):
        PLACES["explained"](fails)


def accuracies(project):
    files = sorted((project.root / "metrics").glob("*.json"))
    return {path.stem: json.loads(path.read_text())[path.stem]["previous"] for path in files}


def runs(project):
    return list((project.root / "runs").glob("fedprox-*"))


@pytest.mark.slow
def test_dvc_finds_the_pipeline_once_although_the_package_links_to_it():
    with Repo(str(PROJECT)) as repo:
        assert {stage.path_in_repo for stage in repo.index.stages} == {"dvc.yaml"}


@pytest.mark.slow
def test_an_experiment_is_run_compared_and_queued(project):
    project.commit()
    first = accuracies(project)
    assert json.loads(project.dvc("metrics", "show", "--json")) == {
        "": {"data": {f"metrics/{name}.json": {"data": {name: {"previous": value}}} for name, value in first.items()}}
    }

    project.dvc("exp", "run", "-S", "algorithms.fedprox.mu=20", "-n", "strong", "report")
    strong = accuracies(project)
    assert strong["fedavg"] == first["fedavg"]
    assert strong["fedprox"] != first["fedprox"]
    (changed,) = json.loads(project.dvc("metrics", "diff", "--json")).items()
    assert changed[0] == "metrics/fedprox.json"
    assert changed[1]["fedprox.previous"]["old"] == first["fedprox"]
    assert changed[1]["fedprox.previous"]["new"] == strong["fedprox"]
    project.dvc("plots", "diff", "HEAD", "-o", "plots")
    page = (project.root / "plots/index.html").read_text()
    assert "curves/fedprox/previous.csv" in page
    assert len(runs(project)) == 2

    project.dvc("exp", "run", "--queue", "-S", "algorithms.fedprox.mu=5", "-n", "weak", "report")
    project.dvc("exp", "run", "--run-all")
    assert len(runs(project)) == 3  # not in DVC's temporary copies
    shown = {row["Experiment"]: row for row in csv.DictReader(project.dvc("exp", "show", "--csv").splitlines())}
    assert {"strong", "weak"} <= shown.keys()
    assert float(shown["weak"]["fedavg.previous"]) == first["fedavg"]
    assert float(shown["weak"]["fedprox.previous"]) != strong["fedprox"]
