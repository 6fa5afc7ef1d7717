"""Progress in a terminal of 80 columns: bars with elapsed and remaining time, read from the records of the runs."""

import io
import os
import pty
import re
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fedtide.runs.compare import compare
from fedtide.runs.display.bars import Bars
from fedtide.runs.display.progress import Follower, Position, Watch
from fedtide.runs.workspace import Workspace
from fedtide.settings.experiment import CompareSettings
from small_runs import small
from terminals import bars, follow, lines

__all__ = ["small"]


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
params = fedtide.Params.read("params.yaml", ["scenario.rounds_per_session=40", "scenario.name=sessions", "model.name=mlp"])
print(fedtide.run(params))
"""


@pytest.mark.slow
def test_a_script_shows_progress_in_a_terminal(folder: Path) -> None:
    (folder / "script.py").write_text(SCRIPT)
    status, text = in_terminal("script.py", command=())
    assert status == 0, text
    assert [bar[2] for bar in bars(text, "fedavg · previous · seed 0")][-1] == "80"
    assert "1 run: 1 complete" in lines(text)


def test_a_script_shows_nothing_elsewhere(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "script.py").write_text(SCRIPT.replace("=40", "=3"))
    runpy.run_path("script.py")
    out, err = capfd.readouterr()
    assert out.startswith("1 run: 1 complete")
    assert err == ""


@pytest.mark.slow
def test_a_notebook_shows_the_round_in_place(folder: Path) -> None:
    nbformat, client = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(SCRIPT.replace("=40", "=3"))])
    client.NotebookClient(book, resources={"metadata": {"path": str(folder)}}).execute()
    outputs = book.cells[0].outputs
    (place,) = [output for output in outputs if output.output_type == "display_data"]
    assert re.match(r"round \d/6 ", place.data["text/plain"])
    assert not [output for output in outputs if output.get("name") == "stderr"]


@pytest.mark.slow
def test_a_comparison_shows_all_runs_in_progress_and_the_total(folder: Path) -> None:
    settings = ["compare.algorithms=[fedavg, fedprox]", "compare.workers=2", "scenario.rounds_per_session=60"]
    status, text = in_terminal("compare", *(word for item in settings for word in ("--set", item)))
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


def test_a_display_learns_of_every_run_of_a_comparison(small: Any, tmp_path: Path) -> None:
    first, second = small(), small(seed=1)
    display, name = Listed(), "scaffold · previous · seed {}".format
    compare([first, second], Workspace(tmp_path), CompareSettings(workers=1), Watch(display=display))
    wanted = [(0, 2, ""), ("begin", name(0)), ("end", name(0), (6, 6)), (1, 2, "")]
    assert display.told == [*wanted, ("begin", name(1)), ("end", name(1), (6, 6)), (2, 2, "")]
    display = Listed()
    compare([first, second], Workspace(tmp_path), CompareSettings(workers=1), Watch(display=display))
    assert display.told == [(2, 2, "")]


def test_a_display_learns_of_every_trial_and_the_best_one(folder: Path) -> None:
    from fedtide.settings.params import Params
    from fedtide.studies.tuning.study import tune

    options = ["tune.trials=2", "tune.seeds=[3, 4]", "tune.workers=1", "tune.space={local.lr: {low: 0.01, high: 1}}"]
    display = Listed()
    result = tune(
        Params.read("params.yaml", options), Workspace(folder / "runs"), folder / "tuning", Watch(display=display)
    )
    begun = [told[1] for told in display.told if told[0] == "begin"]
    assert [name.partition(" · ")[0] for name in begun] == ["trial 0", "trial 1"]
    assert all(name.partition(" · ")[2].startswith("local.lr = ") for name in begun)
    assert [told[1:] for told in display.told if told[0] == "end"] == [(name, (8, 8)) for name in begun]
    assert display.told[0] == (0, 2, "")
    assert display.told[-1] == (2, 2, f"best {result.value:.4g}")


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


@pytest.mark.parametrize("width", [80, 40, 200])
def test_no_line_is_wider_than_the_terminal(tmp_path: Path, width: int) -> None:
    """However long the names, and log lines appear above the bars."""
    (tmp_path / "manifest.json").write_text('{"rounds": 100000}')
    rows = "".join(f"{number},0.5\n" for number in range(1, 99999))
    (tmp_path / "history.csv").write_text(f"round,test_accuracy\n{rows}")
    console = Console(file=io.StringIO(), width=width, height=24, force_terminal=True)
    with Bars(console) as shown:
        shown.count(3, 1000, "best 0.1235")
        shown.begin(f"trial 3 · [local.lr = {'1' * 60}]", [tmp_path])
        console.print("a line of the log")
        shown.end(f"trial 3 · [local.lr = {'1' * 60}]")
        shown.count(4, 1000, "best 0.1235")
    drawn = lines(console.file.getvalue())  # type: ignore[attr-defined]
    assert max(map(len, drawn)) <= width
    assert "a line of the log" in [line.strip() for line in drawn]
    assert "4/1000" in drawn[-1]
    if width >= 80:
        assert any(line.startswith("trial 3 · [local") and "99998/100000" in line and "50.0%" in line for line in drawn)
