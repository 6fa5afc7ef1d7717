"""Scripts of the experiments are called as their pages say, in an empty folder beside ``experiments``."""

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from commands import shared_data

__all__ = ["shared_data"]

Script = Callable[..., str]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def here(tmp_path: Path, shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: the experiments, and a folder of data."""
    (tmp_path / "experiments").symlink_to(ROOT / "experiments")
    (tmp_path / "data").symlink_to(shared_data)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def script(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Script:
    """``script("away/at_seconds.py", "results/away_seconds")`` is the command of the page; returns what it prints."""

    def call(name: str, *arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", [f"experiments/{name}", *arguments])
        capsys.readouterr()
        runpy.run_path(f"experiments/{name}", run_name="__main__")
        return capsys.readouterr().out

    return call
