"""Calls of the scripts in ``benchmarks/``, as they are documented."""

import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "benchmarks"
BAR = "\N{BOX DRAWINGS LIGHT VERTICAL}"

Call = Callable[..., list[str]]
"""``call("rules.py", "--turns", 1)``: the lines that the script prints in an empty folder."""


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Scripts in this process, which has imported what they need."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(SCRIPTS)  # as Python does
    monkeypatch.setenv("FEDTIDE_PLUGINS", "")  # to which they add a folder
    monkeypatch.setenv("COLUMNS", "200")

    def here(name: str, *words: object) -> list[str]:
        monkeypatch.setattr(sys, "argv", [str(SCRIPTS / name), *map(str, words)])
        capsys.readouterr()
        runpy.run_path(str(SCRIPTS / name), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    return here


@pytest.fixture
def start(tmp_path: Path) -> Call:
    """Scripts that start processes, each in a process of its own."""
    kept = {key: value for key, value in os.environ.items() if key not in ("FEDTIDE_PLUGINS", "FEDTIDE_MLRUNS")}

    def apart(name: str, *words: object, before: tuple[str, ...] = ()) -> list[str]:
        command = [*before, sys.executable, str(SCRIPTS / name), *map(str, words)]
        environment = {**kept, "COLUMNS": "200", "PIP_NO_INDEX": "1"}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return apart


def table(lines: list[str]) -> dict[str, list[str]]:
    """The rows of a printed table, by their first cell."""
    rows = [[cell.strip() for cell in line.split(BAR)[1:-1]] for line in lines if line.startswith(BAR)]
    return {cells[0]: cells[1:] for cells in rows}


def numbers(text: str) -> list[float]:
    """All numbers of a text."""
    return [float(found.replace(",", "")) for found in re.findall(r"\d[\d,]*(?:\.\d+)?", text)]
