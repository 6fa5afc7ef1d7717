"""``fedtide doctor``."""

import json
import sqlite3

import pytest


def found(called):
    return {each["topic"]: each for each in json.loads(called.out[-1])}


def problems(called):
    return {topic: each["fact"] for topic, each in found(called).items() if each["cure"]}


def test_a_machine_without_problems_is_described_and_left_alone(fedtide, folder):
    before = sorted(folder.rglob("*"))
    called = fedtide("doctor", "--json")
    assert (called.status, problems(called)) == (0, {})
    facts = found(called)
    assert {"python", "torch", "lightning", "device", "cores", "memory", "TMPDIR", "locks"} <= facts.keys()
    assert facts["device"]["fact"] == "cpu, 32-true"
    assert sorted(folder.rglob("*")) == before
    assert "device: cpu, 32-true" in fedtide("doctor").out


@pytest.mark.slow
def test_every_problem_has_a_line_with_its_cure_and_status_1(fedtide, folder, monkeypatch):
    broken = folder / "plugins/algorithms/mine.py"
    broken.parent.mkdir(parents=True)
    broken.write_text("import nothing_like_this\n")
    monkeypatch.setenv("FEDTIDE_PLUGINS", f"{folder / 'plugins'}:{folder / 'absent'}")
    called = fedtide("doctor", "--set", "tracking.mlflow=true", "--mlruns", "http://me:secret@127.0.0.1:9", "--json")
    assert called.status == 1
    told = problems(called)
    assert told["plug-in folder"] == str(folder / "absent")
    assert told["plug-in"].startswith(f"{broken}:1: ModuleNotFoundError")
    assert "MLflow in http://127.0.0.1:9" in told
    assert "secret" not in called.out[-1]
    lines = [line for line in fedtide("doctor").out if line.startswith("PROBLEM ")]
    assert len(lines) == 2
    assert lines[0].endswith("absent; there is no such folder; correct FEDTIDE_PLUGINS")
    assert lines[1].endswith("; correct or remove the file")


@pytest.mark.slow
def test_a_store_that_another_process_holds_is_a_problem(fedtide, folder, monkeypatch):
    monkeypatch.setattr("fedtide.runs.mlflow.store._PATIENCE", 0.1)
    (folder / "mlruns").mkdir()
    with sqlite3.connect(folder / "mlruns/mlflow.db", isolation_level=None) as holder:
        holder.execute("CREATE TABLE a (b)")
        holder.execute("BEGIN EXCLUSIVE")
        called = fedtide("doctor", "--set", "tracking.mlflow=true", "--json")
        holder.execute("ROLLBACK")
    assert problems(called) == {"MLflow in mlruns": "database is locked"}
    assert problems(fedtide("doctor", "--set", "tracking.mlflow=true", "--json")) == {}


def test_a_device_that_is_not_there_is_a_problem(fedtide):
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    called = fedtide("doctor", "--set", "engine.accelerator=cuda", "--json")
    assert called.status == 1
    assert list(problems(called)) == ["device"]
