"""``benchmarks/card.py`` on the CPU, with a plug-in that does not repeat."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmark_scripts import Call

COMMAND = Path(__file__).parents[2] / "benchmarks" / "card.py"

CHANCE = """
import itertools

from fedtide.methods.algorithms.base import Algorithm

calls = itertools.count()


class Chance(Algorithm):
    '''Another model in every run.'''

    def finish(self, r):
        return r.average() + 1e-12 * next(calls)
"""

pytestmark = pytest.mark.slow


def start(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "FEDTIDE_PLUGINS": str(folder)}
    command = [sys.executable, str(COMMAND), *arguments, "--json", str(folder / "card.json")]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_everything_is_measured_and_what_does_not_repeat_is_found(tmp_path: Path) -> None:
    (tmp_path / "algorithms").mkdir()
    (tmp_path / "algorithms" / "a_chance.py").write_text(CHANCE)
    done = start(tmp_path, "--device", "cpu", "--quick", "--seconds", "300", "--equal-seconds", "5", "--profile")
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "card.json").read_text())
    assert "failed" not in found
    assert not found["left_out"]
    measured = [(row["workload"], row["precision"]) for row in found["rounds"]]
    assert measured[:3] == [("W1", "32-true"), ("W2", "32-true"), ("W3", "32-true")]
    assert all(row["ms"] > 0 for row in found["rounds"] + found["convolutions"])
    assert [row["way"] for row in found["convolutions"]] == ["by default"] * 3
    equal = found["equal"]
    assert list(equal["differ"]) == ["algorithms a_chance"]
    assert "does not repeat: w" in equal["differ"]["algorithms a_chance"]
    assert "models resnet34, norm batch" in equal["left_out"]
    assert "not reached: " in done.stdout


def test_what_takes_too_long_is_stopped_and_named(tmp_path: Path) -> None:
    done = start(tmp_path, "--device", "cpu", "--only", "rounds,convolutions", "--seconds", "1")
    assert done.returncode == 0, done.stderr
    assert "stopped after 1 s; parts that were not begun: convolutions" in done.stdout
    assert json.loads((tmp_path / "card.json").read_text())["left_out"] == ["convolutions"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--only", "rounds,equality"), "no part equality; there are rounds, convolutions, equal, reference"),
        (("--seconds", "0"), "0 should be above 0"),
        pytest.param(
            (),
            "torch sees no GPU",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without one"),
        ),
    ],
    ids=["only", "seconds", "device"],
)
def test_bad_options_are_refused(
    call: Call, tmp_path: Path, arguments: tuple[str, ...], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        call("card.py", *arguments, "--json", "card.json")
    assert line in capsys.readouterr().err.splitlines()[-1]
    assert not list(tmp_path.iterdir())
