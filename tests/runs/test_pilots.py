"""Pilot sessions that are equal are trained once."""

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from filelock import FileLock

from fedtide.federation.federation import Federation
from fedtide.runs import pilots
from fedtide.settings.params import Params
from fedtide.settings.run import RunSettings
from fedtide.world.storage.prepared import load_data
from small_runs import execute

SESSIONS = {"name": "sessions", "num_devices": 2, "num_sessions": 4, "rounds_per_session": 2, "pilot_sessions": 2}


@pytest.fixture(scope="module")
def chosen(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Settings of eight short rounds, four of them pilot rounds: ``chosen(initializer, **changes)``."""
    root = str(tmp_path_factory.mktemp("data"))

    def make(initializer: str, **changes: Any) -> RunSettings:
        raw = {
            "data": {"name": "digits", "root": root},
            "scenario": SESSIONS,
            "model": "softmax_regression",
            "algorithm": "scaffold",
            "initializer": initializer,
            "local": {"steps": 1, "batch_size": 16, "lr": 0.1},
            "client_state": {"on_session_start": "keep"},
            "evaluation": {"models": ["global", "all"], "clients_every": 2},
            "engine": {"workers": 1, "accelerator": "cpu"},
            "checkpoint": {"every": 1},
        }
        return Params({**raw, **changes}).run()

    return make


@pytest.fixture(scope="module")
def previous(chosen: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run that has trained a pilot."""
    folder = tmp_path_factory.mktemp("previous")
    execute(chosen("previous"), folder)
    return folder


@pytest.fixture
def shared(previous: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(previous, tmp_path / "shared"))


@pytest.fixture
def rounds_run(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Fills with the rounds that are really run."""
    done: list[int] = []
    run_round = Federation.run_round

    def counted(self: Federation, state: Any) -> Any:
        done.append(state.round + 1)
        return run_round(self, state)

    monkeypatch.setattr(Federation, "run_round", counted)
    return done


def records(run: Path) -> Any:
    """Everything that must not depend on which run trained the pilot."""
    with (run / "history.csv").open(encoding="utf-8", newline="") as stream:
        history = [{key: cell for key, cell in row.items() if key != "seconds"} for row in csv.DictReader(stream)]
    lines = (run / "events.jsonl").read_text(encoding="utf-8").splitlines()
    sessions = [facts for facts in map(json.loads, lines) if facts["event"] == "session"]
    model = {name: value.tolist() for name, value in torch.load(run / "model.pt", weights_only=True).items()}
    tables = [(run / name).read_text(encoding="utf-8") for name in ("per_class.csv", "session_scores.csv")]
    scores = {file.name: file.read_bytes() for file in (run / "client_scores").iterdir()}
    return history, sessions, tables, scores, model


def only_run(runs: Path, initializer: str) -> Path:
    (found,) = runs.glob(f"scaffold-{initializer}-*")
    return found


@pytest.mark.parametrize("initializer", ["dynamic", "average", "continuous", "oracle", "restart"])
def test_a_run_that_adopts_its_pilot_equals_one_that_trained_it(
    chosen: Any, tmp_path: Path, shared: Path, rounds_run: list[int], initializer: str
) -> None:
    execute(chosen(initializer), tmp_path / "alone")
    rounds_run.clear()
    remarks: list[str] = []
    summary = execute(chosen(initializer), shared, log=remarks.append)
    assert rounds_run == [5, 6, 7, 8]
    assert (summary["state"], summary["rounds"]) == ("complete", 8)
    assert any(line.endswith("continuing from the shared pilot, round 4") for line in remarks)
    adopted, alone = (only_run(tmp_path / name, initializer) for name in ("shared", "alone"))
    assert records(adopted) == records(alone)
    assert [facts["initializer"] for facts in records(adopted)[1]] == ["pilot", initializer, initializer]
    assert json.loads((alone / "summary.json").read_text())["bytes_up"] == summary["bytes_up"]


def test_only_the_initializer_may_differ(chosen: Any, shared: Path, rounds_run: list[int]) -> None:
    for other in ({"seed": 1}, {"algorithm": "fedavg"}, {"local": {"epochs": 1, "lr": 0.2}}):
        rounds_run.clear()
        execute(chosen("average", **other), shared)
        assert rounds_run[0] == 1
    assert len(list((shared / "pilots").iterdir())) == 4
    assert len(list(shared.glob("*/manifest.json"))) == 4  # the run directories: a pilot is none


@pytest.mark.parametrize(("name", "sessions"), [(None, 2), ("mine", 4)])
def test_nothing_is_shared_where_nothing_follows_or_by_a_run_with_its_own_name(
    chosen: Any, tmp_path: Path, name: str | None, sessions: int
) -> None:
    execute(chosen("previous", scenario={**SESSIONS, "num_sessions": sessions}), tmp_path, name=name)
    assert not (tmp_path / "pilots").exists()


def test_runs_with_callbacks_share_no_pilot(chosen: Any, tmp_path: Path, rounds_run: list[int]) -> None:
    """A callback sees every round of its run."""
    for initializer in ("previous", "average"):
        rounds_run.clear()
        callbacks = [{"path": "lightning.pytorch.callbacks.Callback"}]
        execute(chosen(initializer, engine={"workers": 1, "accelerator": "cpu", "callbacks": callbacks}), tmp_path)
        assert rounds_run[0] == 1


def test_a_damaged_pilot_is_trained_again_with_one_remark(chosen: Any, shared: Path, rounds_run: list[int]) -> None:
    (file,) = (shared / "pilots").glob("*/state-*.pt")
    whole = file.read_bytes()
    file.write_bytes(whole[:-10])
    remarks: list[str] = []
    execute(chosen("average"), shared, log=remarks.append)
    assert rounds_run == list(range(1, 9))
    assert [line for line in remarks if "damaged" in line] == [
        f"{file.parent}: the shared pilot is damaged or belongs to other runs; training it again"
    ]
    rounds_run.clear()
    execute(chosen("restart"), shared)  # the run that trained it again has shared it
    assert rounds_run == [5, 6, 7, 8]


@pytest.mark.parametrize("stopped", [2, 6])
def test_a_stopped_run_continues_to_its_pilot_or_from_it(
    chosen: Any, tmp_path: Path, rounds_run: list[int], stopped: int, dead_part: Callable[[Path], Path]
) -> None:
    import lightning as L

    class Stop(L.Callback):
        def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
            trainer.should_stop = pl_module.state.round >= stopped

    assert execute(chosen("average"), tmp_path / "alone")["state"] == "complete"
    assert execute(chosen("average"), tmp_path / "shared", callbacks=[Stop()])["state"] == "interrupted"
    rounds_run.clear()
    execute(chosen("previous"), tmp_path / "shared")  # trains the pilot unless the first run has finished it
    assert rounds_run[0] == (1 if stopped == 2 else 5)
    rounds_run.clear()
    (pilot,) = (tmp_path / "shared" / "pilots").iterdir()
    leftover = dead_part(pilot / "state-00000004.pt")
    execute(chosen("average"), tmp_path / "shared")
    assert not leftover.exists()
    assert rounds_run[0] == max(stopped, 4) + 1
    assert records(only_run(tmp_path / "shared", "average")) == records(only_run(tmp_path / "alone", "average"))


def test_runs_do_not_wait_for_one_that_shares_the_pilot(chosen: Any, tmp_path: Path, rounds_run: list[int]) -> None:
    settings = chosen("previous")
    folder = tmp_path / "pilots" / pilots.pilot_key(settings, load_data(settings))
    folder.mkdir(parents=True)
    with FileLock(str(folder / ".lock")):
        execute(settings, tmp_path)
    assert rounds_run == list(range(1, 9))
    assert not list(folder.glob("state-*.pt"))
