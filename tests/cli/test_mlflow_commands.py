"""MLflow on the command line: addresses, credentials, and the report at the parent of its comparison."""

from pathlib import Path

import pytest

from commands import sets
from fedtide.cli.options import mlruns_named
from fedtide.core.errors import SettingsError
from fedtide.runs.mlflow.results import record_report
from fedtide.runs.mlflow.server import Server, place_of
from fedtide.runs.mlflow.store import Store
from fedtide.runs.workspace import Workspace, workspace
from fedtide.settings.params import Params


def test_a_password_is_not_shown(fedtide, folder):
    for wrong in ("ftp://me:hunter@host/", "http://me:hunter@host:port"):
        called = fedtide("run", "--set", f"tracking.uri={wrong}", "--set", "tracking.model=3")
        assert called.status == 2
        assert "hunter" not in "".join(called.err)


def test_a_path_or_uri_names_mlflows_place(folder):
    assert place_of("sqlite:///mlflow.db") == folder / "mlflow.db"
    assert place_of("sqlite:////data/my.sqlite3?timeout=9") == Path("/data/my.sqlite3")
    assert place_of(Path("mlruns")) == place_of("mlruns") == folder / "mlruns"
    assert place_of("/a:b/mlruns?") == Path("/a:b/mlruns?")
    for uri, address, user, password in (
        ("http://127.0.0.1:5000/", "http://127.0.0.1:5000", None, None),
        ("https://me:p%40ss@host/ml/flow/?x=1#y", "https://host/ml/flow", "me", "p@ss"),
        ("http://token@[::1]:80", "http://[::1]:80", "token", None),
    ):
        where = place_of(uri)
        assert (where.address, where.user, where.password) == (address, user, password)
        assert repr(where) == f"Server(address={address!r})"
    for uri, address in (
        *((same, same) for same in ("databricks", "databricks://mine", "uc:mine", "file:///mlruns", "sqlite:///store")),
        *((same, same) for same in ("azureml://host/v1", "arn:aws:sagemaker:us-east-1:1:mlflow-tracking-server/a")),
        ("postgresql+psycopg2://me:hunter@host/db?password=hunter", "postgresql+psycopg2://host/db"),
    ):
        where = place_of(uri)
        assert (where.address, where.uri) == (address, uri)
        assert "hunter" not in repr(where)
    message = r"^MLFLOW_TRACKING_URI \(or --mlruns, FEDTIDE_MLRUNS\).* should be .*tracking\.mlflow=false$"
    with pytest.raises(SettingsError, match=message) as caught:
        place_of("http://me:hunter@:x")
    assert "hunter" not in str(caught.value)


@pytest.mark.slow
def test_a_run_does_without_a_place_that_mlflow_does_not_have(fedtide, folder, monkeypatch):
    for uri in ("nowhere://me:hunter@host/db", "postgresql+hunter://me:hunter@host/db", "file:///mlruns"):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        called = fedtide(
            "compare", "-q", *sets("tracking.mlflow=true", "compare.algorithms=[fedavg]", "compare.seeds=[0, 1]")
        )
        assert called.status == 0
        (line,) = [line for line in called.err if "MLflow" in line]
        assert line.endswith("runs are not logged there (see tracking.mlflow=false)")
        assert "me:hunter" not in line
    assert not (folder / "mlruns").exists()


@pytest.mark.slow
def test_mlflow_gets_an_address_of_its_own_kind(fedtide, folder, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///store")
    called = fedtide("run", "-q", *sets("tracking.mlflow=true", "tracking.model=false"))
    assert (called.status, [line for line in called.err if "MLflow" in line]) == (0, [])
    (run,) = Store(place_of("sqlite:///store"), "fedtide").runs("tags.run_key != ''")
    assert run.info.status == "FINISHED"


def test_variables_count_where_settings_say_nothing(fedtide, folder, monkeypatch):
    def place(*overrides: str) -> tuple[object, str]:
        found = workspace(Params.read(folder / "params.yaml", overrides), folder / "made", None, mlruns_named(None))
        return found.mlruns, found.experiment

    own = ("tracking.mlflow=true", "tracking.uri=http://own", "tracking.experiment=own")
    assert place(own[0]) == (folder / "mlruns", "fedtide")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:pw@host:5000/")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "named")
    assert place(own[0]) == (Server("http://host:5000", "me", "pw"), "named")
    assert place(*own) == (Server("http://own"), "own")
    assert fedtide("ui").out == ["http://host:5000"]
    monkeypatch.setenv("FEDTIDE_MLRUNS", "here")
    assert place(own[0])[0] == folder / "here"
    monkeypatch.setenv("FEDTIDE_MLRUNS", "")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://host:x")
    assert fedtide("run", "--set", own[0]).refusal.endswith(
        "such as http://127.0.0.1:5000; or set tracking.mlflow=false"
    )
    assert not (folder / "runs").exists()


@pytest.mark.parametrize("name", ["a/b", "a:b", " "])
def test_a_model_name_that_mlflow_refuses_is_refused_before_the_run(fedtide, folder, name):
    refused = fedtide("run", "--set", f"tracking.register={name!r}").refusal
    assert "tracking.register" in refused
    assert "should be a name that MLflow takes, without / and :" in refused
    assert not (folder / "runs").exists()


@pytest.mark.slow
def test_a_report_is_at_the_parent_of_its_comparison(fedtide, folder):
    def call(*arguments: str):
        settings = ("--set", "tracking.mlflow=true", "--set", "compare.algorithms=[fedavg, fedprox]")
        called = fedtide(*arguments, *settings)
        assert called.status == 0, called.err
        return called

    call("compare", "-q", "--set", "compare.workers=1")
    (folder / "report" / "of another").mkdir(parents=True)
    (folder / "report" / "of another" / "report.html").write_text("another")
    (folder / "report" / "figures").mkdir(exist_ok=True)
    (folder / "report" / "figures" / "a.svg").write_text("<svg/>")
    assert not [line for line in call("report").err if "MLflow" in line]

    store = Store(folder / "mlruns", "fedtide")
    (parent,) = store.runs("tags.comparison != ''")
    run, out = parent.info.run_id, folder / "report"

    def listed(place: str) -> set[str]:
        return {item.path for item in store.client.list_artifacts(run, place) if not item.is_dir}

    files = {f"report/{path.name}" for path in out.iterdir() if path.is_file()}
    assert {"report/report.html", "report/table.csv"} <= files
    assert (listed("report"), listed("report/figures")) == (files, {"report/figures/a.svg"})
    page = Path(store.client.download_artifacts(run, "report/report.html"))
    assert page.read_bytes() == (out / "report.html").read_bytes()
    assert "tracking" not in page.read_text().split("fedtide compare")[1].split("\n")[0]
    note = parent.data.tags["mlflow.note.content"]
    assert "| Algorithm | Initializer |" in note
    assert "| fedprox | previous |" in note
    children = store.runs(f"tags.mlflow.parentRunId = '{run}'")
    assert {child.data.tags["algorithm"] for child in children} == {"fedavg", "fedprox"}
    assert all(child.outputs.model_outputs for child in children)


def test_a_report_makes_no_store(folder):
    record_report(Workspace(folder, None, folder / "mlruns", "fedtide", "unknown"), folder, "any", pytest.fail)
    assert not (folder / "mlruns").exists()
