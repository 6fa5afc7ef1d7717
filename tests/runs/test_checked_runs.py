"""An interrupted run that `fedtide check` calls intact continues, and has the numbers of a run without interruption."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtide.core.randomness import generator
from fedtide.runs.check import check_run
from fedtide.settings.run import Imported
from small_runs import execute, history

LOGGERS = (Imported(path="lightning.pytorch.loggers.CSVLogger"),)
SETTINGS = {
    "scenario": {"name": "sessions", "num_devices": 4, "num_sessions": 2, "rounds_per_session": 3},
    "evaluation": {"clients_every": 2, "models": ["global", "participants"]},
    "model": "mlp",
    "algorithm": "fedssg",
}


@pytest.fixture(scope="module")
def made(small: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """Settings, and a folder with a whole run, and one that ended in round 5, after the state of round 4 was saved."""
    import lightning as L

    class Dying(L.Callback):
        def on_train_batch_start(self, trainer: L.Trainer, pl_module: Any, *_: Any) -> None:
            if pl_module.state.round == 5:
                raise RuntimeError("gone")

    settings, runs = small(**SETTINGS), tmp_path_factory.mktemp("runs")
    assert execute(settings, runs, name="whole", loggers=LOGGERS)["state"] == "complete"
    with pytest.raises(RuntimeError, match="gone"):
        execute(settings, runs, name="stopped", loggers=LOGGERS, callbacks=[Dying()])
    return settings, runs


def files(run: Path) -> list[Path]:
    return sorted(path for path in run.rglob("*") if path.is_file() and not path.name.startswith(".lock"))


def damaged(content: bytes, name: str) -> Iterator[bytes]:
    """Damages of a file: a flipped bit (many for JSON, where it may leave another value), cut off, emptied."""
    draws = generator(0, f"damage {name}")
    for place in draws.integers(len(content), size=12 if name.endswith(".json") else 3):
        yield content[:place] + bytes([content[place] ^ (1 << int(draws.integers(8)))]) + content[place + 1 :]
    yield b""
    yield content[: draws.integers(len(content))]
    yield content[:-1]


def numbers(run: Path) -> dict[str, Any]:
    """What a run computes."""
    found: dict[str, Any] = {"history.csv": history(run)}
    for path in (run / "per_class.csv", run / "clients.csv", run / "model.pt", *run.glob("client_scores/*")):
        found[path.name] = path.read_bytes()
    with np.load(run / "timeline.npz") as arrays:
        found["timeline.npz"] = {name: arrays[name].tolist() for name in arrays.files}
    return found


@pytest.mark.slow
def test_a_damaged_file_is_named_or_does_not_matter(made: tuple[Any, Path], tmp_path: Path) -> None:
    settings, runs = made
    whole = numbers(runs / "whole")
    stopped, named, continued = runs / "stopped", 0, 0
    assert check_run(stopped).state == "unfinished"
    names = [path.relative_to(stopped).as_posix() for path in files(stopped)]
    assert {"settings.json", "manifest.json", "loggers.json", "events.jsonl", "timeline.npz"} < set(names)
    assert sum(name.startswith(("state/", "client_scores/")) for name in names) >= 4
    run = tmp_path / "run"
    shutil.copytree(stopped, run)
    for name in names:
        before = (run / name).read_bytes()
        for content in damaged(before, name):
            (run / name).write_bytes(content)
            if check_run(run).problems:
                named += 1
                continue
            assert execute(settings, tmp_path, name="run", loggers=LOGGERS)["state"] == "complete", name
            assert numbers(run) == whole, name
            continued += 1
            shutil.rmtree(run)
            shutil.copytree(stopped, run)
        (run / name).write_bytes(before)
    assert min(named, continued) > 10
