"""`import fedtide`: the public names, their examples, and what importing them costs."""

import doctest
import importlib
import shutil
from pathlib import Path
from typing import Any

import pytest

import fedtide

DOCUMENTED = (
    "fedtide.methods.algorithms.base",
    "fedtide.core.plugins",
    "fedtide.runs.execution",
    "fedtide.interface",
    "fedtide.settings.params",
    "fedtide.world.dataset",
    "fedtide.world.timeline",
)


def test_every_public_name_is_there_and_documented() -> None:
    for name in fedtide.__all__:
        assert getattr(fedtide, name).__doc__, name
    assert set(fedtide.__all__) <= set(dir(fedtide))
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = fedtide.no_such_name  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize("name", DOCUMENTED)
def test_the_examples_of_the_documentation_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = doctest.testmod(importlib.import_module(name), verbose=False)
    assert outcome.attempted > 0
    assert outcome.failed == 0


@pytest.mark.slow
def test_runs_that_fail_are_raised_after_the_others_unless_they_are_allowed(
    tmp_path: Path, marks: Path, shared_data: Path
) -> None:
    fragile = {"name": "fragile", "how": "raise", "times": 2, "marks": str(marks)}
    raw = {
        "data": {"name": "digits", "root": str(shared_data)},
        "model": "softmax_regression",
        "scenario": {"name": "static", "num_clients": 4, "rounds": 3},
        "algorithms": {"fragile": fragile, "fedavg": {}},
        "compare": {"algorithms": ["fragile", "fedavg"]},
    }
    params = fedtide.Params(raw)
    message = r"^1 of 2 runs failed: fragile / previous / seed 0: .*fragile\.py:31: in finish: ZeroDivisionError"
    with pytest.raises(RuntimeError, match=message):
        fedtide.compare(params, tmp_path / "runs", workers=1)
    records = fedtide.compare(params, tmp_path / "runs", workers=1, allow_failures=True)
    assert list(records.runs.state) == ["unfinished", "complete"]


def test_records_of_a_folder_without_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(fedtide.SettingsError, match="no run directories"):
        fedtide.load(tmp_path)


@pytest.mark.slow
def test_a_run_that_is_there_twice_is_read_once(tmp_path: Path) -> None:
    small = {"name": "static", "num_clients": 2, "rounds": 1}
    fedtide.run(fedtide.Params({"model": "softmax_regression", "scenario": small}), tmp_path / "runs", name="own")
    for copy, ended in (("again", True), ("z", False)):
        shutil.copytree(tmp_path / "runs/own", tmp_path / "runs" / copy)
        if not ended:
            (tmp_path / "runs" / copy / "summary.json").unlink()
    (row,) = fedtide.load(tmp_path / "runs").runs.to_dict("records")
    assert (row["key"], row["state"]) == ("own", "complete")


@pytest.mark.parametrize("function", [fedtide.run, fedtide.compare, fedtide.write_report])
@pytest.mark.parametrize("given", [{"seed": 1}, "params.yaml", 7])
def test_what_is_no_settings_is_refused(function: Any, given: Any, tmp_path: Path) -> None:
    wanted = rf"^params is {given!r}, expected fedtide\.Params; write fedtide\.Params\(\.\.\.\) around a mapping"
    with pytest.raises(fedtide.SettingsError, match=wanted):
        function([given] if given == 7 and function is fedtide.compare else given, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_script_cannot_be_one_of_several_processes(tmp_path: Path) -> None:
    with pytest.raises(fedtide.SettingsError, match=r"engine\.devices = 2: only the command"):
        fedtide.run(fedtide.Params({"engine": {"devices": 2, "accelerator": "cpu"}}), tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
