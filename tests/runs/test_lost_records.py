"""Runs whose records or saved states were lost, changed or exchanged: restored to the same bits, or refused by name."""

import os
import re
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fedtide.core.errors import SettingsError
from fedtide.records.run_directory import TABLES, RunDirectory
from fedtide.runs.check import check_run
from fedtide.settings.run import RunSettings
from small_runs import events, execute, history

SESSIONS = {"name": "sessions", "num_devices": 2, "num_sessions": 3, "rounds_per_session": 2}


@pytest.fixture(scope="module")
def settings(small: Any) -> RunSettings:
    """Six rounds with a state after every second, the last two of which stay, a row in every table and an event in each."""
    chosen: RunSettings = small(
        scenario=SESSIONS,
        participation="all",
        algorithm={"name": "fedgrab"},
        evaluation={"clients_every": 2},
        checkpoint={"keep_finished": True},
    )
    return chosen


@pytest.fixture(scope="module")
def origin(settings: RunSettings, stop_after: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``complete``; ``stopped`` after round 5, with states after rounds 4 and 5."""
    folder = tmp_path_factory.mktemp("runs")
    execute(settings, folder, name="complete")
    execute(settings, folder, name="stopped", callbacks=[stop_after(5)])
    return folder


@pytest.fixture
def complete(origin: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(origin / "complete", tmp_path / "complete"))


@pytest.fixture
def stopped(origin: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(origin / "stopped", tmp_path / "stopped"))


def again(run: Path, settings: RunSettings) -> list[str]:
    """The log of one more execution."""
    lines: list[str] = []
    execute(settings, run.parent, name=run.name, log=lines.append)
    return lines


def refusal(run: Path, settings: RunSettings) -> str:
    """The one line that refuses one more execution, which changes nothing."""
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(SettingsError) as caught:
        again(run, settings)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


def content(run: Path) -> list[Any]:
    """Everything but how long rounds took and how often the run was interrupted."""
    tables = [(run / name).read_bytes() for name in TABLES if name != "history.csv" and (run / name).exists()]
    files = [(run / name).read_bytes() for name in ("timeline.npz", "settings.json", "manifest.json")]
    scores = {file.name: file.read_bytes() for file in (run / "client_scores").iterdir()}
    model = {name: value.tolist() for name, value in torch.load(run / "model.pt", weights_only=True).items()}
    return [history(run), tables, events(run, "session"), files, scores, model]


def without_row(file: Path, number: int) -> None:
    """Remove a line as if it had never been written."""
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:number] + lines[number + 1 :]))


def other_digit(file: Path) -> None:
    """Another digit early in the file: as long as before."""
    text = file.read_text()
    at = re.search(r"\d", text)
    assert at is not None
    file.write_text(f"{text[: at.start()]}{9 - int(at[0])}{text[at.end() :]}")


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "deleted": (lambda file: file.unlink(), " is missing"),
    "gap": (lambda file: without_row(file, 2), " has "),
    "changed": (other_digit, " was changed"),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["history.csv", "per_class.csv", "events.jsonl"])
def test_lost_records_of_a_stopped_run_are_refused_by_name(
    stopped: Path, settings: RunSettings, name: str, damage: str
) -> None:
    act, words = DAMAGES[damage]
    if name == "events.jsonl" and damage == "gap":
        (stopped / name).write_bytes(b"")
    else:
        act(stopped / name)
    line = refusal(stopped, settings)
    assert f"{name}{words}" in line
    assert "delete the run directory" in line
    assert any(name in problem for problem in check_run(stopped).problems)


@pytest.mark.parametrize("name", ["history.csv", "per_class.csv"])
def test_rows_that_only_the_newest_state_counts_on_are_replayed(
    stopped: Path, origin: Path, settings: RunSettings, name: str
) -> None:
    file = stopped / name
    size = file.stat().st_size
    file.write_bytes(file.read_bytes()[:-40])
    lines = again(stopped, settings)
    sizes = f"{name} has {size - 40:,} instead of {size:,} bytes"
    assert lines[0] == f"state-00000005.pt does not match the record files: {sizes}; continuing from an older state"
    assert "stopped: continuing from round 4" in lines
    assert content(stopped) == content(origin / "complete")
    assert check_run(stopped).state == "intact"


@pytest.mark.parametrize("damage", ["deleted", "short"])
def test_the_lost_model_of_a_complete_run_is_restored(
    complete: Path, origin: Path, settings: RunSettings, damage: str
) -> None:
    model = complete / "model.pt"
    model.write_bytes(b"x") if damage == "short" else model.unlink()
    assert any("model.pt" in problem for problem in check_run(complete).problems)
    lines = again(complete, settings)
    assert lines[0].startswith("complete: model.pt ")
    assert lines[0].endswith("; restoring it from the saved state")
    assert content(complete) == content(origin / "complete")
    assert check_run(complete).state == "intact"
    assert again(complete, settings) == ["complete: already complete, nothing to do"]


@pytest.mark.parametrize("name", ["model.pt", "summary.json", "history.csv"])
def test_a_complete_run_without_a_state_never_starts_over(complete: Path, settings: RunSettings, name: str) -> None:
    (complete / name).unlink()
    shutil.rmtree(complete / "state")
    (complete / "state").mkdir()
    assert f"{name} is missing, and no checkpoint is left to restore it from" in refusal(complete, settings)
    assert check_run(complete).problems == (f"{name} is missing",)


def test_a_changed_summary_is_refused_and_written_again(complete: Path, origin: Path, settings: RunSettings) -> None:
    other_digit(complete / "summary.json")
    assert "summary.json is damaged: it was changed; delete it" in refusal(complete, settings)
    (complete / "summary.json").unlink()
    again(complete, settings)
    assert RunDirectory(complete).summary() == RunDirectory(origin / "complete").summary()
    assert content(complete) == content(origin / "complete")


@pytest.mark.slow
def test_a_state_of_another_seed_is_refused(stopped: Path, settings: RunSettings) -> None:
    other = settings.model_copy(update={"seed": 7})
    execute(other, stopped.parent, name="other")
    shutil.copy(stopped.parent / "other/state/state-00000006.pt", stopped / "state")
    line = refusal(stopped, settings)
    assert "state-00000006.pt: this checkpoint belongs to fedgrab-previous-s7-" in line
    assert "or its run (fedgrab-previous-s0-" in line
    assert any("state-00000006.pt" in problem for problem in check_run(stopped).problems)


def test_temporary_files_of_dead_processes_are_removed(stopped: Path, settings: RunSettings) -> None:
    """Of states of rounds that never come again, of records, from other machines, and with this process's own number."""
    for name in ("state/state-00000009.pt", "history.csv", "memory-x"):
        for host, process in (("gone", 1), (socket.gethostname(), os.getpid())):
            (stopped / f"{name}.{host}-{process}.part").write_text("half")
    (stopped / "notes.part").write_text("somebody's notes")
    again(stopped, settings)
    assert [path.name for path in stopped.rglob("*.part")] == ["notes.part"]
