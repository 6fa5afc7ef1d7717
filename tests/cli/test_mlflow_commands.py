"""MLflow on the command line: addresses, credentials, and the report at the parent of its comparison."""

from pathlib import Path

import pytest

from fedtide.runs.mlflow.results import record_report
from fedtide.runs.mlflow.server import Server
from fedtide.runs.mlflow.store import Store
from fedtide.runs.workspace import Workspace


def test_a_password_is_not_shown(fedtide, folder):
    for wrong in ("ftp://me:hunter@host/", "http://me:hunter@host:port"):
        called = fedtide("run", "--set", f"tracking.uri={wrong}", "--set", "tracking.model=3")
        assert called.status == 2
        assert "hunter" not in "".join(called.err)


@pytest.mark.parametrize(
    ("uri", "address", "user", "password"),
    [
        ("http://127.0.0.1:5000/", "http://127.0.0.1:5000", None, None),
        ("https://me:p%40ss@host/ml/flow/?x=1#y", "https://host/ml/flow", "me", "p@ss"),
        ("https://token@host", "https://host", "token", None),
        ("http://[::1]:80", "http://[::1]:80", None, None),
    ],
)
def test_addresses(uri, address, user, password):
    where = Server.at(uri)
    assert (where.address, where.user, where.password) == (address, user, password)
    assert repr(where) == f"Server(address={address!r})"


def test_a_server_is_named_without_the_password_and_nothing_is_started(fedtide, folder):
    called = fedtide("ui", "--set", "tracking.uri=http://me:hunter@127.0.0.1:9")
    assert (called.status, called.out, called.err) == (0, ["http://127.0.0.1:9"], [])


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
