"""Lightning loggers by import path: every round once, with the round as the step, whatever happens to the run."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch.loggers import CSVLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fedtide.settings.run import Imported
from small_runs import history

BOTH = tuple(Imported(path=f"lightning.pytorch.loggers.{name}") for name in ("TensorBoardLogger", "CSVLogger"))


class Failing(CSVLogger):
    """Fails in the third round."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        if step == 3:
            raise OSError("no such server\nat all")
        super().log_metrics(metrics, step)


def logged(directory: Path) -> tuple[list[int], list[int], list[float]]:
    """Steps in TensorBoard's and in the CSV file, and accuracies in the former."""
    events = EventAccumulator(str(directory / "tensorboard"))
    events.Reload()
    points = events.Scalars("test_accuracy")
    with (directory / "csv" / "metrics.csv").open(newline="") as stream:
        steps = [int(row["step"]) for row in csv.DictReader(stream)]
    return [point.step for point in points], steps, [point.value for point in points]


@pytest.mark.slow
def test_an_interrupted_run_is_logged_once(small: Any, run_once: Any, stop_after: Any, tmp_path: Path) -> None:
    """Of the rounds after the newest state, which are run again, none is logged again."""
    settings = small()
    assert run_once(settings, loggers=BOTH, callbacks=[stop_after(4)])["state"] == "interrupted"
    directory = tmp_path / "x"
    assert logged(directory)[:2] == ([1, 2, 3, 4], [1, 2, 3, 4])
    newest = max((directory / "state").iterdir())
    newest.unlink()  # as if the process had been killed before it was written
    assert run_once(settings, loggers=BOTH)["state"] == "complete"
    board, table, accuracies = logged(directory)
    assert board == table == [1, 2, 3, 4, 5, 6]
    assert accuracies == pytest.approx([float(row["test_accuracy"]) for row in history(directory)])
    hyperparameters = (directory / "tensorboard" / "hparams.yaml").read_text()
    assert "algorithm:\n  name: scaffold" in hyperparameters


def test_a_logger_that_fails_is_dropped(small: Any, run_once: Any, tmp_path: Path) -> None:
    lines: list[str] = []
    chosen = (Imported(path="test_loggers:Failing", arguments={"name": "failing"}), BOTH[1])
    assert run_once(small(), loggers=chosen, log=lines.append)["state"] == "complete"
    failures = [line for line in lines if "continues without it" in line]
    wanted = "tracking.loggers.0 (test_loggers:Failing): OSError: no such server at all; training continues without it"
    assert failures == [wanted]
    with (tmp_path / "x" / "csv" / "metrics.csv").open(newline="") as stream:
        assert [int(row["step"]) for row in csv.DictReader(stream)] == [1, 2, 3, 4, 5, 6]


def test_a_logger_that_cannot_be_opened_is_dropped(small: Any, run_once: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    lines: list[str] = []
    chosen = (Imported(path=BOTH[1].path, arguments={"save_dir": str(tmp_path / "file" / "below")}),)
    assert run_once(small(), loggers=chosen, log=lines.append)["state"] == "complete"
    (line,) = [line for line in lines if "continues without it" in line]
    assert line.startswith("tracking.loggers.0 (lightning.pytorch.loggers.CSVLogger): NotADirectoryError: ")


NAMELESS = "{path: lightning.pytorch.loggers.CSVLogger, arguments: {nam: x}}"


@pytest.mark.parametrize(
    ("command", "logger", "wanted"),
    [
        ("compare", NAMELESS, "takes no 'nam'; did you mean 'name'?"),
        ("run", "{path: 'nowhere.at_all:Logger'}", "0.path = 'nowhere.at_all:Logger': no module 'nowhere.at_all'"),
        ("run", "{path: lightning.pytorch.callbacks.Timer}", ".loggers.logger.Logger, got the class Timer"),
        ("run", "{arguments: {}}", "tracking.loggers.0.path: Field required"),
    ],
)
def test_bad_loggers_are_one_line_and_nothing_is_run(
    fedtide: Any, folder: Path, command: str, logger: str, wanted: str
) -> None:
    assert wanted in fedtide(command, "--set", f"tracking.loggers=[{logger}]").refusal
    assert not [path for path in (folder / "runs").glob("*/*") if path.suffix == ".csv"]


@pytest.mark.slow
def test_a_comparison_logs_each_of_its_runs(fedtide: Any, folder: Path) -> None:
    """In worker processes, and below one folder where it is given."""
    chosen = "[{path: lightning.pytorch.loggers.CSVLogger, arguments: {save_dir: logs}}]"
    settings = ["--set", "compare.seeds=[0, 1]", "--set", f"tracking.loggers={chosen}", "--set", "compare.workers=2"]
    called = fedtide("compare", "--json", "-q", *settings)
    assert called.status == 0, called.err
    keys = {summary["run_key"] for summary in json.loads(called.out[-1])}
    assert {path.name for path in (folder / "logs").iterdir()} == keys
    for key in keys:
        assert len((folder / "logs" / key / "csv" / "metrics.csv").read_text().splitlines()) == 5
