"""``fedtide tide``: a method runs, its folder is verified, and it is on the board; what was changed is found by name."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from commands import Fedtide, sets
from fedtide.core.storage.locks import held
from fedtide.records.run_directory import RunDirectory, hashed, read_hashed
from fedtide.runs.display.progress import UNWATCHED
from fedtide.studies.tide.campaign import run_method
from fedtide.studies.tide.method import Method
from fedtide.studies.tide.scores import row
from fedtide.studies.tide.suite import chosen_worlds
from fedtide.studies.tide.suite import suite as worlds_of

OWN = """
algorithm: {name: fedprox, mu: 0.1}
space: {local.lr: {choices: [0.02, 0.1, 0.5]}}
"""


@pytest.fixture(scope="module")
def careful(frozen: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A method's file, and its folder, run in all worlds."""
    place = tmp_path_factory.mktemp("careful")
    (place / "careful.yaml").write_text(OWN)
    worlds, here = chosen_worlds(None, frozen), ["compare.workers=1", "tune.workers=1"]
    run_method(Method.of(str(place / "careful.yaml"), frozen), worlds, place / "tide", UNWATCHED, here)
    return place


@pytest.fixture
def tide(fedtide: Fedtide, suite: Path) -> Fedtide:
    """Calls ``fedtide tide`` on the suite."""
    return lambda *words: fedtide("tide", *words, "--suite", str(suite))


@pytest.fixture
def ran(careful: Path, folder: Path) -> Path:
    """A copy of it."""
    shutil.copytree(careful, folder, dirs_exist_ok=True)
    return folder / "tide"


def run_folders(runs: Path) -> list[Path]:
    return sorted(file.parent for file in runs.glob("*/settings.json"))


def settings(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((path / "settings.json").read_text())
    return found


@pytest.mark.slow
def test_a_method_runs_is_verified_and_is_on_the_board(tide: Fedtide, suite: Path, ran: Path, folder: Path) -> None:
    assert tide("run", "fedavg", "-q").status == 0
    before = {path: path.stat().st_mtime_ns for path in ran.rglob("history.csv")}
    assert tide("run", "fedavg", "careful.yaml", "-q").status == 0
    assert before == {path: path.stat().st_mtime_ns for path in ran.rglob("history.csv")}
    found = tide("verify")
    assert found.status == 0
    assert found.out == [f"{name}: 4 runs in 2 worlds, verified" for name in ("careful", "fedavg")]

    assert tide("board", "tide", "--alone").status == 0
    out = folder / "report" / "tide"
    scores = pd.read_csv(out / "scores.csv")
    for home in run_folders(ran / "careful" / "ending" / "runs"):
        seed = settings(home)["seed"]
        line = scores.set_index(["method", "world", "seed"]).loc[("careful", "ending", seed)]
        history = pd.read_csv(home / "history.csv")
        for column, score in (("client_accuracy_mean", "score"), ("test_accuracy", "global_score")):
            assert line[score] == pytest.approx(history[column].iloc[-1], abs=1e-9)  # a tenth of six rounds
        assert line["bytes"] == history["bytes_up"].iloc[-1] + history["bytes_down"].iloc[-1]
        assert line["gradients"] == 2 * history["completed"].sum()
    table = pd.read_csv(out / "board.csv", index_col="method")
    assert table.loc["fedavg", "mean"] == 0
    assert table["bytes"].tolist() == [1, 1]
    page = (out / "board.html").read_text()
    assert "<h1>mine</h1>" in page
    assert "<td>careful</td>" in page

    shutil.copyfile(out / "scores.csv", suite / "scores.csv")
    refused = tide("board", "tide").refusal
    assert refused == "tide: careful is the name of a published method; rename the method, or use --alone"
    assert tide("board").status == 0


@pytest.mark.slow
def test_what_the_suite_does_not_ask_for_is_named(tide: Fedtide, suite: Path, ran: Path) -> None:
    home = ran / "careful" / "ending"
    runs, trials = run_folders(home / "runs"), run_folders(home / "search" / "runs")

    def problems() -> list[str]:
        found = tide("verify", "tide/careful", "--json")
        assert found.status == 1
        (method,) = json.loads(found.out[-1])
        assert all(row["world"] == "changing" for row in method["rows"])
        said = [line.removeprefix("careful, ending: ") for line in method["problems"]]
        assert len(said) == len(method["problems"])
        return said

    shutil.copytree(runs[0], home / "runs" / "again")
    assert problems() == ["seed 0: 2 runs; exactly one is required"] + [
        f"{name}: this run is not part of the suite" for name in ("again", runs[0].name)
    ]
    shutil.rmtree(home / "runs" / "again")

    shutil.copytree(trials[0], home / "search" / "runs" / "fourth")
    assert problems() == ["4 trials, the budget is 3"]
    shutil.rmtree(home / "search" / "runs" / "fourth")

    history = runs[0] / "history.csv"
    text = history.read_text()
    history.write_text(f"{text[:-2]}{'2' if text[-2] == '1' else '1'}\n")
    assert problems() == [f"{runs[0].name}: history.csv was changed"]
    history.write_text(text)

    moved = home.with_name("moved")
    runs[0].rename(moved)
    assert problems() == ["seed 0: 0 runs; exactly one is required"]
    moved.rename(runs[0])

    frozen = suite / "suite.json"
    limits = json.loads(frozen.read_text())
    ending = limits["worlds"]["ending"]
    kept = dict(ending)
    ending["bytes"] = 1000
    frozen.write_text(json.dumps(limits))
    assert len(said := problems()) == 2
    assert all("the budget is 1,000" in line for line in said)
    ending |= {"bytes": kept["bytes"], "timelines": {"0": "0" * 12, "1": kept["timelines"]["1"]}}
    frozen.write_text(json.dumps(limits))
    assert [line.split(" ", 1)[1].split(" digest")[0].rpartition(", ")[2] for line in problems()] == [
        "the timeline built here has",
        f"the suite has {'0' * 12}",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        (["local.epochs=3"], "its settings differ from those of the world (local.epochs)"),
        (["local.lr=another"], "its settings differ from those of the best trial"),
        (
            ["scenario.rounds_per_session=1"],
            "its settings differ from those of the world (scenario.rounds_per_session)",
        ),
    ],
)
def test_a_run_with_other_settings_is_named(
    tide: Fedtide, fedtide: Fedtide, ran: Path, changed: list[str], problem: str
) -> None:
    home = ran / "careful" / "ending"
    best = home / "search" / "best.yaml"
    shutil.rmtree(home / "runs")
    chosen = sets("compare.workers=1", *changed)
    if changed == ["local.lr=another"]:  # of another trial
        own = yaml.safe_load(best.read_text())
        local = own["algorithms"]["careful"]["with"]["local"]
        local["lr"] = next(rate for rate in (0.02, 0.1, 0.5) if rate != local["lr"])
        best.write_text(yaml.safe_dump(own))
        chosen = chosen[:2]
    assert fedtide("compare", "--params", str(best), "--runs", str(home / "runs"), "-q", *chosen).status == 0
    found = tide("verify", "tide")
    assert found.status == 1
    assert all(any(line.endswith(problem) and f"-s{seed}-" in line for line in found.out) for seed in (0, 1))


FEDAVG = "algorithm: {{name: fedavg, with: {{{}}}}}"


@pytest.mark.parametrize(
    ("arguments", "method", "line"),
    [
        (
            ["run", "bad.yaml"],
            FEDAVG.format("scenario: {num_devices: 4}"),
            "sets scenario.num_devices, which belongs to",
        ),
        (["run", "bad.yaml"], FEDAVG.format("local: {epochs: 9}"), "sets local.epochs, which belongs"),
        (
            ["run", "bad.yaml"],
            FEDAVG.format("evaluation: {batch_size: 9}"),
            "sets evaluation.batch_size, which belongs",
        ),
        (["run", "bad.yaml"], "algorithm: {name: fedavgg}", "did you mean"),
        (["run", "bad.yaml"], "algorithms: {}", "bad.yaml: algorithm: Field required"),
        (["run", "fedprx"], "", "did you mean 'fedprox'?"),
        (["run", "none.yaml"], "", "no method file none.yaml"),
        (["run", "fedavg", "--world", "endig"], "", "did you mean 'ending'?"),
        (["verify", "nowhere"], "", "nowhere: no method folder (with a method.yaml) found; see `fedtide tide run`"),
        (["run", "local.yaml"], "", "local.yaml: local is a reference of the suite; rename the method"),
        (["board"], "", "no runs for the leaderboard; give a folder of methods"),
    ],
)
def test_bad_input_is_one_line(tide: Fedtide, folder: Path, arguments: list[str], method: str, line: str) -> None:
    (folder / "bad.yaml").write_text(method)
    (folder / "local.yaml").write_text("algorithm: {name: fedavg}")
    assert line in tide(*arguments).refusal
    assert not (folder / "tide").exists()


def test_a_world_that_was_changed_is_refused(tide: Fedtide, suite: Path) -> None:
    file = suite / "worlds" / "ending.yaml"
    file.write_text(file.read_text() + "seed: 3\n")
    refused = tide("run", "fedavg").refusal
    assert "the file differs from the frozen one of mine" in refused


@pytest.mark.slow
def test_another_method_of_the_same_name_is_refused(tide: Fedtide, ran: Path, folder: Path) -> None:
    (folder / "careful.yaml").write_text(OWN.replace("0.1}", "0.2}", 1))
    refused = tide("run", "careful.yaml").refusal
    assert "another method of this name was run in this folder" in refused


def test_a_method_that_a_world_refuses_runs_in_the_others(tide: Fedtide, folder: Path) -> None:
    (folder / "headed.yaml").write_text("algorithm: {name: fedper}\n")
    found = tide("run", "headed.yaml", "--workers", "1")
    assert found.status == 0
    assert sum("not applicable" in line for line in found.err) == 2  # softmax regression has no head
    found = tide("verify")
    assert found.status == 0
    assert found.out[-1] == "headed: 0 runs in 2 worlds, verified"


@pytest.mark.slow
def test_a_method_that_another_process_runs_is_refused(tide: Fedtide, ran: Path) -> None:
    with held(ran / "careful" / ".lock", ""):
        refused = tide("run", "careful.yaml").refusal
    assert refused.startswith("tide/careful: another process is running this method in this folder")
    assert tide("verify").status == 0  # nothing says that a world refuses it


@pytest.mark.slow
def test_a_refusal_beside_runs_does_not_hide_them(tide: Fedtide, ran: Path) -> None:
    (ran / "careful" / "ending" / "refused.txt").write_text("not today\n")
    found = tide("verify")
    assert (found.status, found.out[0]) == (0, "careful: 4 runs in 2 worlds, verified")


@pytest.mark.slow
def test_a_run_that_diverged_has_the_trivial_score(suite: Path, ran: Path) -> None:
    world, home = worlds_of(suite)["ending"], run_folders(ran / "careful" / "ending" / "runs")[0]
    assert world.limits.trivial == 0.1  # ten digits
    own = world.params.run(seed=settings(home)["seed"])
    timeline = world.timelines[own.seed]
    complete = row("careful", world, own.seed, RunDirectory(home), timeline)
    assert complete.state == "complete"
    assert min(complete.score, complete.global_score) > 0.1
    summary = home / "summary.json"
    summary.write_text(json.dumps(hashed((read_hashed(summary) or {}) | {"state": "diverged"})))
    diverged = row("careful", world, own.seed, RunDirectory(home), timeline)
    assert math.isnan(diverged.global_score)
    assert diverged._replace(global_score=0.0) == complete._replace(state="diverged", score=0.1, global_score=0.0)


WILD = """
algorithm: {name: fedavg, with: {divergence_threshold: 1.0e+6}}
space: {local.lr: {choices: [1.0e+20, 1.0e+30]}}
"""


@pytest.mark.slow
def test_a_world_in_which_all_trials_diverged_has_the_trivial_score(tide: Fedtide, folder: Path) -> None:
    """It is no refusal; trials that were changed, or a search that has not ended, do not count."""
    (folder / "wild.yaml").write_text(WILD)
    arguments = ("--world", "ending")
    found = tide("run", "wild.yaml", *arguments, "--workers", "1")
    assert found.status == 0
    assert any(line.endswith("all trials diverged, so every seed scores 0.1") for line in found.err)

    def verified() -> tuple[list[dict[str, Any]], list[str]]:
        (method,) = json.loads(tide("verify", "tide/wild", *arguments, "--json").out[-1])
        assert method["refused"] == {}
        return method["rows"], method["problems"]

    rows, problems = verified()
    assert problems == []
    assert [(row["seed"], row["state"], row["score"]) for row in rows] == [(0, "diverged", 0.1), (1, "diverged", 0.1)]
    search = folder / "tide" / "wild" / "ending" / "search"
    trial = run_folders(search / "runs")[0]
    text = (trial / "history.csv").read_text()
    (trial / "history.csv").write_text(text.replace("1", "2", 1))
    assert verified() == ([], [f"wild, ending: trial {trial.name}: history.csv was changed"])
    (trial / "history.csv").write_text(text)
    (search / "trials.csv").unlink()
    assert verified()[1][0] == "wild, ending: no trial of the study is complete"


@pytest.mark.slow
def test_a_search_on_test_samples_is_named(tide: Fedtide, fedtide: Fedtide, ran: Path) -> None:
    search = ran / "careful" / "ending" / "search"
    names = [path.name for path in run_folders(search / "runs")]
    own = yaml.safe_load((search / "best.yaml").read_text())
    shutil.rmtree(search)
    (search / "runs").mkdir(parents=True)
    (search / "best.yaml").write_text(yaml.safe_dump(own))
    words = sets("compare={workers: 1, seeds: [1000]}", "evaluation.splits=[test, validation]")
    done = fedtide("compare", "--params", str(search / "best.yaml"), "--runs", str(search / "runs"), "-q", *words)
    assert done.status == 0
    (trial,) = run_folders(search / "runs")
    assert trial.name not in names
    found = tide("verify", "tide")
    assert found.status == 1
    problem = "its settings differ from those of the study (evaluation.splits)"
    assert f"careful, ending: trial {trial.name}: {problem}" in found.out


@pytest.mark.slow
def test_references_run_beside_the_methods(tide: Fedtide, folder: Path) -> None:
    """Their settings may be the world's, and their timelines others than its."""
    arguments = ("--world", "ending")
    assert tide("run", "pooled", "local", *arguments, "--workers", "1", "-q").status == 0
    found = tide("verify", *arguments)
    assert found.out == [f"{name}: 2 runs in 1 worlds, verified" for name in ("local", "pooled")]
    (folder / "tide" / "pooled").rename(folder / "tide" / "other")
    (line, *_) = tide("verify", "tide/other", *arguments).out
    assert "its settings differ from those of the study (scenario." in line


@pytest.mark.slow
def test_a_search_that_cannot_work_is_no_refusal(tide: Fedtide, folder: Path) -> None:
    arguments = ("fedprox", "--world", "ending", "--workers", "1")
    home = folder / "tide" / "fedprox" / "ending"
    home.mkdir(parents=True)
    (home / "search").write_text("")
    called = tide("run", *arguments)
    assert called.status == 1, called.err
    assert not (home / "refused.txt").exists()
    (home / "search").unlink()
    assert tide("run", *arguments).status == 0
    assert " 5 runs, 5 already ended; time: about 0.0 min; " in tide("run", *arguments, "--dry-run").out[0]
