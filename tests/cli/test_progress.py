"""Progress in a terminal of 80 columns: bars with elapsed and remaining time, read from the records of the runs."""

import os
import pty
import re
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from commands import sets
from fedtide.runs.compare import compare
from fedtide.runs.display.progress import Follower, Position, Watch
from fedtide.runs.workspace import Workspace
from fedtide.settings.experiment import CompareSettings
from terminals import bars, follow, lines


def in_terminal(*arguments: str, command: Sequence[str] = ("-m", "fedtide")) -> tuple[int, str]:
    """Exit status and output of a command in a terminal of 80 x 24."""
    process, screen = pty.fork()
    if process == 0:
        for name in ("COLUMNS", "LINES", "NO_COLOR"):
            os.environ.pop(name, None)
        os.environ["TERM"] = "xterm-256color"
        os.execv(sys.executable, [sys.executable, *command, *arguments])
    text = follow(screen)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), text


SCRIPT = """
import fedtide
params = fedtide.Params.read("params.yaml", ["scenario.rounds_per_session=3", "scenario.name=sessions", "model.name=mlp"])
print(fedtide.run(params))
"""


@pytest.mark.slow
def test_a_script_shows_nothing_elsewhere(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "script.py").write_text(SCRIPT)
    runpy.run_path("script.py")
    out, err = capfd.readouterr()
    assert out.startswith("1 run: 1 complete")
    assert err == ""


@pytest.mark.slow
def test_a_comparison_shows_all_runs_in_progress_and_the_total(folder: Path) -> None:
    settings = ["compare.algorithms=[fedavg, fedprox]", "compare.workers=2", "scenario.rounds_per_session=60"]
    status, text = in_terminal("compare", *sets(*settings))
    assert status == 0, text
    assert {(bar[1], bar[2]) for bar in bars(text, "total")} >= {("0", "2"), ("2", "2")}
    for label in ("fedavg", "fedprox"):
        assert any(int(bar[1]) > 0 and bar[3] for bar in bars(text, f"{label} · previous · seed 0"))
        assert re.search(rf"[12]/2  {label} / previous / seed 0  final accuracy", text)
    assert lines(text)[-1].startswith("total")
    assert max(len(line) for line in lines(text) if "━" in line) <= 80


class Listed:
    """A display that lists what it is told, and how far runs are when they end."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.open: dict[str, Follower] = {}

    def begin(self, name: str, directories: Any) -> None:
        self.open[name] = Follower(directories)
        self.told.append(("begin", name))

    def end(self, name: str) -> None:
        self.told.append(("end", name, self.open.pop(name).position()[:2]))

    def count(self, ended: int, total: int, best: str = "") -> None:
        self.told.append((ended, total, best))


@pytest.mark.slow
def test_a_display_learns_of_every_run_of_a_comparison(small: Any, tmp_path: Path) -> None:
    first, second = small(), small(seed=1)
    display, name = Listed(), "scaffold · previous · seed {}".format
    compare([first, second], Workspace(tmp_path), CompareSettings(workers=1), Watch(display=display))
    wanted = [(0, 2, ""), ("begin", name(0)), ("end", name(0), (6, 6)), (1, 2, "")]
    assert display.told == [*wanted, ("begin", name(1)), ("end", name(1), (6, 6)), (2, 2, "")]
    display = Listed()
    compare([first, second], Workspace(tmp_path), CompareSettings(workers=1), Watch(display=display))
    assert display.told == [(2, 2, "")]


def test_records_that_are_being_written(tmp_path: Path) -> None:
    """A row without its end is not there yet; a run that is taken back has fewer rounds."""
    run, later = tmp_path / "run", tmp_path / "later"
    follower = Follower([run, later])
    assert follower.position() == Position(0, None, "")
    run.mkdir()
    (run / "manifest.json").write_text('{"rounds": 9}')
    (run / "history.csv").write_text("round,test_accuracy\n")
    assert follower.position() == Position(0, 18, "")
    (run / "history.csv").write_text("round,test_accuracy\n1,0.5\n2,\n3,0.7")
    assert follower.position() == Position(2, 18, "50.0%")
    (run / "history.csv").write_text("round,test_accuracy\n1,0.25\n")
    assert follower.position() == Position(1, 18, "25.0%")
    later.mkdir()
    (later / "history.csv").write_text("round,validation_accuracy\n1,0.75\n")
    assert follower.position() == Position(2, 18, "75.0%")
