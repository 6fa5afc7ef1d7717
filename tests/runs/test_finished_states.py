"""Saved states of complete runs: removed unless they are kept on request, and only once nothing needs them."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from fedtide.core.errors import SettingsError
from fedtide.core.storage.locks import held
from fedtide.core.storage.sealed import peek_header
from fedtide.federation.federation import Federation
from fedtide.records.files.states import generations, remove_states, state_files
from fedtide.records.run_directory import RunDirectory
from fedtide.runs.check import check_run, free_states
from small_runs import execute, history


@pytest.fixture(scope="module")
def origin(small: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run ``kept`` with its last two states, each with a log, and one ``bare``."""
    folder = tmp_path_factory.mktemp("runs")
    execute(small(checkpoint={"keep_finished": True}), folder, name="kept")
    execute(small(), folder, name="bare")
    return folder


@pytest.fixture
def kept(origin: Path, tmp_path: Path) -> RunDirectory:
    return RunDirectory(Path(shutil.copytree(origin / "kept", tmp_path / "kept")))


@pytest.fixture
def untrained(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round fails the test."""
    monkeypatch.setattr(Federation, "run_round", lambda *_: pytest.fail("trained again"))


def again(run: Path, settings: Any) -> list[str]:
    """The log of one more execution."""
    lines: list[str] = []
    assert execute(settings, run.parent, name=run.name, log=lines.append)["state"] == "complete"
    return lines


def test_a_complete_run_without_states_is_intact_and_has_all_records(origin: Path) -> None:
    kept, bare = origin / "kept", origin / "bare"
    assert [path.name for path in state_files(kept / "state")] == [
        "state-00000006.pt", "state-00000004.pt", "rows-00000002.npys", "rows-00000004.npys"
    ]  # fmt: skip
    assert list((bare / "state").iterdir()) == []
    assert (check_run(kept).state, check_run(bare).state) == ("intact", "intact")
    for name in ("model.pt", "per_class.csv", "settings.json", "manifest.json"):
        assert (bare / name).read_bytes() == (kept / name).read_bytes(), name
    assert history(kept) == history(bare)


def test_a_finished_run_is_freed_by_the_next_call(kept: RunDirectory, small: Any, untrained: None) -> None:
    records = {path: path.read_bytes() for path in kept.path.iterdir() if path.is_file() and path.name != ".lock.owner"}
    settings = small(checkpoint={"keep_finished": True})
    assert again(kept.path, settings) == ["kept: already complete, nothing to do"]
    assert len(state_files(kept.state)) == 4
    assert again(kept.path, small()) == ["kept: already complete, nothing to do"]
    assert state_files(kept.state) == []
    assert {path: path.read_bytes() for path in records} == records
    assert check_run(kept.path).state == "intact"


def test_states_that_can_repair_records_are_not_freed_and_without_them_records_are_refused(kept: RunDirectory) -> None:
    file = kept.path / "history.csv"
    file.write_text(file.read_text().replace("6,1,0.", "6,1,1.", 1))
    assert free_states(kept) == 0
    assert len(state_files(kept.state)) == 4
    put_back = "history.csv was changed; restore it, or delete"
    with pytest.raises(SettingsError, match=f"{put_back} its summary.json, and the same command restores it"):
        kept.history()
    remove_states(kept.state)
    with pytest.raises(SettingsError, match=f"{put_back} the run directory to start the run again$"):
        kept.history()


def test_a_run_in_use_is_left_alone(kept: RunDirectory) -> None:
    with held(kept.path / ".lock", "held"):
        assert free_states(kept) == 0
    assert len(state_files(kept.state)) == 4


@pytest.mark.slow
def test_runs_that_are_not_complete_keep_their_states(small: Any, stop_after: Any, tmp_path: Path) -> None:
    execute(small(), tmp_path, name="stopped", callbacks=[stop_after(3)])
    diverging = small(local={"lr": 1e3}, algorithm="fedavg", model="mlp", divergence_threshold=100.0)
    assert execute(diverging, tmp_path, name="diverged")["state"] == "diverged"
    (tmp_path / "diverged" / "state" / "state-00000001.pt").touch()
    for name in ("stopped", "diverged"):
        before = state_files(tmp_path / name / "state")
        assert before
        assert free_states(RunDirectory(tmp_path / name)) == 0
        assert state_files(tmp_path / name / "state") == before


def test_a_run_is_found_finished_while_its_states_vanish(
    kept: RunDirectory, small: Any, untrained: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner removes them between a look into the folder and one into a state."""

    def sweep(folder: Path) -> None:
        newest, _ = generations(folder)
        remove_states(folder)
        peek_header(newest)

    monkeypatch.setattr("fedtide.records.run_directory.sweep", sweep)
    assert again(kept.path, small(checkpoint={"keep_finished": True})) == ["kept: already complete, nothing to do"]
    assert check_run(kept.path).state == "intact"
