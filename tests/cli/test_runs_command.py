"""``fedtide runs``, ``fedtide run --like``, and the line about a run that is repeated."""

import io
import json
import os
import shutil
import subprocess
import sys

import pytest

from commands import sets
from fedtide.core.storage.locks import held
from fedtide.records.run_directory import ENVIRONMENT

NAMES = ("fedavg-previous-s0-", "scaffold-previous-s3-")


@pytest.fixture
def runs(fedtide, folder):
    """Two complete runs that ``params.yaml`` does not compare, and one that failed; the folder."""
    assert fedtide("run", "-q", "--set", "local.lr=0.2").status == 0
    assert fedtide("run", "-q", "--set", "algorithm=scaffold", "--set", "seed=3").status == 0
    failed = folder / "runs/broken"
    (failed / "state").mkdir(parents=True)
    (failed / "error.txt").write_text("Traceback")
    return folder / "runs"


def names(runs):
    return sorted(path.name for path in runs.iterdir())


def test_a_list_has_every_run_the_newest_first(fedtide, runs):
    rows = json.loads(fedtide("runs", "list", "--json").out[-1])
    assert [row["state"] for row in rows] == ["failed", "complete", "complete"]
    assert rows[0]["run"] == "broken"
    scaffold, fedavg = rows[1:]
    assert (scaffold["label"], scaffold["seed"], scaffold["rounds"], scaffold["planned"]) == ("scaffold", 3, 4, 4)
    assert 0 <= scaffold["age"] <= fedavg["age"]
    for row in rows:
        assert row["bytes"] == sum(file.stat().st_size for file in (runs / row["run"]).rglob("*") if file.is_file())
    summary = json.loads((runs / fedavg["run"] / "summary.json").read_text())
    assert fedavg["value"] == summary[fedavg["metric"]] == summary["final_accuracy"]
    table = fedtide("runs", "list").out
    assert len(table) == 4
    assert table[0].split()[:4] == ["label", "initializer", "seed", "state"]
    assert "kB" in table[2]
    chosen = (("--label", "fedavg", 1), ("--seed", "3", 1), ("--seed", "4", 0), ("--state", "complete", 2))
    for option, value, count in chosen:
        assert len(json.loads(fedtide("runs", "list", option, value, "--json").out[-1])) == count


@pytest.mark.slow
def test_a_diff_names_what_differs_and_nothing_else(fedtide, runs):
    first, second = (next(runs.glob(f"{name}*")) for name in NAMES)
    found = json.loads(fedtide("runs", "diff", "fedavg", second.name, "--json").out[-1])
    settings = {each["name"]: (each["first"], each["second"]) for each in found if each["part"] == "settings"}
    assert settings["local.lr"] == (0.2, 0.1)
    assert settings["seed"] == settings["world_seed"] == (0, 3)
    own = {name for name in settings if name.startswith("algorithm.")}
    assert settings.keys() - own == {"label", "local.lr", "seed", "world_seed"}
    sources = {each["name"] for each in found if each["part"] == "sources"}
    assert {"fedtide.methods.algorithms.fedavg", "fedtide.methods.algorithms.scaffold"} <= sources
    assert not {each["part"] for each in found} & {"data", "versions", "records"}
    assert ("results", "final_accuracy") in {(each["part"], each["name"]) for each in found}
    lines = [line.split()[:4] for line in fedtide("runs", "diff", "fed", "sca").out]
    assert ["settings", "local.lr", "0.2", "0.1"] in lines
    assert fedtide("runs", "diff", "fedavg", str(first)).out == [f"{first.name} and {first.name} do not differ"]
    (first / ENVIRONMENT).unlink()  # as of a version that did not write it
    found = json.loads(fedtide("runs", "diff", "fedavg", "scaffold", "--json").out[-1])
    assert [each for each in found if each["part"] in ("sources", "versions", "records")] == [
        {"part": "records", "name": ENVIRONMENT, "first": False, "second": True}
    ]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["runs", "diff", "fedavh", "scaffold"], "runs: 'fedavh': no such run; see `fedtide runs list`"),
        (["runs", "diff", "", "scaffold"], "runs: '': 3 runs begin with it: broken, fedavg-"),
        (["runs", "diff", "fedavg", "broken"], "runs/broken: no settings.json, so this is not a run directory"),
        (["runs", "list", "--runs", "nowhere"], "nowhere: no run directories in this folder"),
        (["runs", "list", "--state", "faild"], "--state = faild: no such state; did you mean 'failed'? (known: compl"),
        (["runs", "remove"], "name the runs to remove, or give their --state, such as --state failed"),
        (["runs", "remove", "fedavg", "--state", "failed"], "name the runs to remove, or give their --state"),
        (["runs", "remove", "fedavg", "nothing", "--yes"], "runs: 'nothing': no such run"),
        (["run", "--like", "nothing"], "runs: 'nothing': no such run"),
        (["run", "--like", "broken"], "runs/broken: no settings.json, so this is not a run directory"),
        (
            ["run", "--like", "fedavg", "--params", "params.yaml"],
            "--like and --params both give the settings of the run",
        ),
        (
            ["run", "--like", "fedavg", "--set", "local.lr=-1"],
            "--set local.lr=-1: local.lr = -1: should be greater than",
        ),
    ],
)
def test_wrong_use_is_one_line_and_changes_nothing(fedtide, runs, words, line):
    before = names(runs)
    assert fedtide(*words).refusal.startswith(line)
    assert names(runs) == before


def test_runs_are_removed_once_the_user_agrees(fedtide, runs, monkeypatch):
    before = names(runs)
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    assert fedtide("runs", "remove", "scaffold").status == 1
    assert names(runs) == before
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    said = fedtide("runs", "remove", "scaffold").out
    assert [line.strip() for line in said] == ["1 run removed; the report and MLflow were not changed"]
    assert names(runs) == before[:2]
    assert fedtide("runs", "remove", "--state", "failed", "--yes").status == 0
    assert names(runs) == before[1:2]
    assert fedtide("runs", "remove", "--state", "failed").out[0].startswith("0 runs removed")


def test_a_run_in_use_is_not_removed_nor_are_the_others(fedtide, runs):
    before = names(runs)
    with held(runs / before[1] / ".lock", "held"):
        called = fedtide("runs", "remove", *before, "--yes")
    line = f"runs/{before[1]}: a process is working on this run (process {os.getpid()} on "
    assert called.refusal.startswith(line)
    assert names(runs) == before


def test_what_the_comparison_needs_is_removed_with_yes_alone(fedtide, runs):
    assert fedtide("run", "-q", "--name", "mine").status == 0
    line = "the comparison of params.yaml needs mine"
    assert fedtide("runs", "remove", "mine", "fedavg").err == [f"fedtide: {line}; --yes removes the runs nevertheless"]
    assert (runs / "mine").is_dir()
    called = fedtide("runs", "remove", "mine", "--yes")
    assert (called.status, called.err) == (0, [line])
    assert not (runs / "mine").exists()


def test_runs_of_a_folder_are_those_of_that_folder(fedtide, runs, monkeypatch):
    """Also where the working folder has runs of the same names."""
    copied = shutil.copytree(runs, runs.parent / "copy")
    monkeypatch.chdir(copied)
    (name,) = (each for each in names(runs) if each.startswith("scaffold"))
    assert fedtide("runs", "remove", name, "--runs", "../runs", "--yes").status == 0
    assert fedtide("runs", "remove", "--state", "complete", "--runs", "../runs", "--yes").status == 0
    assert (names(runs), len(names(copied))) == (["broken"], 3)
    assert fedtide("runs", "remove", str(copied / name), "--runs", "../runs", "--yes").status == 0
    assert name not in names(copied)


def test_damaged_runs_and_settings_do_not_prevent_removal(fedtide, runs, folder):
    (name,) = (each for each in names(runs) if each.startswith("scaffold"))
    (runs / name / "settings.json").write_text("{")
    assert [row["run"] for row in json.loads(fedtide("runs", "list", "--state", "damaged", "--json").out[-1])] == [name]
    (folder / "params.yaml").write_text("algorithm: nope\n")
    assert fedtide("runs", "remove", name).refusal.endswith("; --yes removes the runs nevertheless")
    assert fedtide("runs", "remove", "--state", "damaged", "--yes").out[0].startswith("1 run removed")
    assert name not in names(runs)


def test_a_run_like_a_recorded_one_has_its_key(fedtide, runs, folder):
    """What follows from another setting follows an override of that one: seed of the world, labels."""
    (folder / "params.yaml").write_text("local: {lr: 7}\n")
    offline = sets("tracking.mlflow=false", "engine.workers=1")
    before = names(runs)
    for beginning in ("scaffold", "fedavg"):
        called = fedtide("run", "--like", beginning, *offline, "--json")
        assert called.status == 0
        assert json.loads(called.out[-1])["run_key"].startswith(beginning)
    assert names(runs) == before
    other = sets("algorithm=fedavg", "seed=0")
    assert fedtide("run", "-q", "--like", "scaffold", *offline, *other).status == 0
    (new,) = set(names(runs)) - set(before)
    settings = json.loads((runs / new / "settings.json").read_text())
    assert (settings["label"], settings["world_seed"], settings["local"]["lr"]) == ("fedavg", 0, 0.1)
    assert settings["model"] == {"name": "softmax_regression"}


@pytest.mark.slow
def test_a_label_is_that_of_the_algorithm_that_it_was_made_for(fedtide, runs):
    weak = "algorithms={weak: {name: fedprox, mu: 0.01}}"
    assert fedtide("run", "-q", "--set", weak, "--set", "algorithm=weak", "--name", "first").status == 0
    for name, override, label in (("same", "local.lr=0.3", "weak"), ("other", "algorithm=fedavg", "fedavg")):
        assert fedtide("run", "-q", "--like", "first", "--set", override, "--name", name).status == 0
        assert json.loads((runs / name / "settings.json").read_text())["label"] == label


@pytest.mark.slow
def test_a_repeated_run_says_what_has_changed(fedtide, folder, monkeypatch):
    """Settings in this process; a source in another one, since sources are read once."""
    plugin = folder / "plugins/algorithms/mine.py"
    plugin.parent.mkdir(parents=True)
    text = 'from fedtide.methods.algorithms.fedavg import FedAvg\n\n\nclass Mine(FedAvg):\n    """Mine."""\n'
    plugin.write_text(text)
    monkeypatch.setenv("FEDTIDE_PLUGINS", str(folder / "plugins"))
    mine, changed = ("run", "--set", "algorithm=mine"), sets("local.lr=0.2", "local.steps=2")
    assert not [line for line in fedtide(*mine).err if "new run" in line]
    (first,) = names(folder / "runs")
    other = [line for line in fedtide(*mine, *changed).err if "new run" in line]
    (second,) = set(names(folder / "runs")) - {first}
    said = "local.lr (0.1 -> 0.2), local.steps (1 -> 2)"
    assert other == [f"{second} is a new run: {first} is complete, but differs in {said}"]
    assert not [line for line in fedtide(*mine, "--set", "seed=1").err if "new run" in line]
    plugin.write_text(text + "    constant = 1\n")
    again = subprocess.run(
        [sys.executable, "-m", "fedtide", *mine, *changed], cwd=folder, capture_output=True, text=True
    )
    assert again.returncode == 0
    module = "sources fedtide.methods.algorithms.mine"
    assert f": {second} is complete, but differs in {module}\n" in again.stderr


@pytest.mark.slow
def test_a_repeated_run_names_the_table(fedtide, folder):
    table = folder / "visits.csv"
    lines = ["price,label,shop", *(f"{n % 7},{n % 2},{n % 3}" for n in range(90))]
    words = ("run", "--set", "data={name: table, file: visits.csv, client: shop}")
    for more in ([], ["5,1,2"]):
        table.write_text("\n".join([*lines, *more, ""]))
        called = fedtide(*words)
        assert called.status == 0, called.err
    assert [line.partition("differs in ")[2] for line in called.err if "new run" in line] == ["data visits.csv"]
