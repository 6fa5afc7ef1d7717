"""The command line, called in the tests' process: fixtures for tests of commands and of what documents say."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from fedtide.cli.main import main

PARAMS = """
data: {{name: digits, root: {data}}}
scenario: {{name: sessions, num_devices: 3, num_sessions: 2, rounds_per_session: 2}}
model: {{name: softmax_regression}}
local: {{steps: 1, lr: 0.1}}
engine: {{accelerator: cpu, workers: 1}}
tracking: {{mlflow: false}}
"""


class Called(NamedTuple):
    """What came of a command."""

    status: int
    out: list[str]
    err: list[str]

    @property
    def refusal(self) -> str:
        """The line of a command that refuses its input: exit status 2, and nothing else is said."""
        assert (self.status, self.out, len(self.err)) == (2, [], 1), self
        assert self.err[0].startswith("fedtide: ")
        return self.err[0].removeprefix("fedtide: ")


Fedtide = Callable[..., Called]


def sets(*settings: str) -> list[str]:
    """Settings as words of a command."""
    return [word for setting in settings for word in ("--set", setting)]


@pytest.fixture(scope="session")
def shared_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder of prepared data for all runs of the session."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture
def folder(tmp_path: Path, shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the settings of a run of four rounds."""
    (tmp_path / "params.yaml").write_text(PARAMS.format(data=shared_data))
    monkeypatch.chdir(tmp_path)
    for name in ("FEDTIDE_MLRUNS", "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def fedtide(folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Fedtide:
    """Calls the command line in the working directory: ``fedtide("run", "--json")``."""

    def call(*arguments: str) -> Called:
        monkeypatch.setattr(sys, "argv", ["fedtide", *arguments])
        capfd.readouterr()
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capfd.readouterr()
        return Called(int(left.value.code or 0), out.splitlines(), err.splitlines())

    return call
