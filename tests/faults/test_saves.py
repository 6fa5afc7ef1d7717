"""Saved states whose rows are in logs: killed, or without power, at the operations of their saves."""

import random
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from attempt import Process
from injection import Injection, Moment
from power import Journal, lose
from saver import ROUNDS, state

from fedtide.federation.saving import checkpoint
from support import in_full

SAVER = str(Path(__file__).parent / "saver.py")


def execute(folder: Path, *moments: Moment, **options: Any) -> int | None:
    """Save all states into ``<folder>/state``; the exit status."""
    injection = Injection(folder, moments, **options)
    return Process(folder, [SAVER, "state"], folder.with_suffix(".output"), injection).wait()


def new(folder: Path) -> Path:
    """A folder for states."""
    (folder / "state").mkdir(parents=True)
    return folder


def operations(tmp_path: Path) -> int:
    """Number of operations of all saves."""
    trace = tmp_path / "trace"
    trace.mkdir()
    assert execute(new(tmp_path / "whole"), trace=trace) == 0
    return len((trace / "operations.jsonl").read_text().splitlines())


def rounds_saved(folder: Path) -> list[int]:
    """Rounds of the states there are, newest first; each of them is whole and what it should be."""
    found = []
    while paths := checkpoint.generations(folder / "state"):
        saved, skipped = checkpoint.load(folder / "state", "run")
        assert saved is not None
        assert not skipped
        expected, values = state(saved.round), in_full(saved.values)
        for name, rows in expected["memory"].items():
            assert torch.equal(values["memory"][name], rows)
        assert all(torch.equal(values[name], expected[name]) for name in ("counts", "seen"))
        found.append(saved.round)
        paths[0].unlink()
    return found


@pytest.mark.slow
def test_a_kill_at_any_operation_leaves_two_whole_states(tmp_path: Path) -> None:
    newest = [0]
    for number in range(0, operations(tmp_path), 2):
        folder = new(tmp_path / str(number))
        moment = Moment(operation=number, place="torn" if number % 3 == 1 else "before", size=100)
        assert execute(folder, moment) in (-signal.SIGKILL, -signal.SIGXFSZ, 0)  # 0: nothing left to tear
        found = rounds_saved(folder)
        assert len(found) >= min(2, max(found, default=0))
        assert max(found, default=0) >= newest[-1]
        newest.append(max(found, default=0))
    assert newest[-1] >= ROUNDS - 1


@pytest.mark.slow
def test_a_power_loss_at_any_operation_leaves_a_whole_state(tmp_path: Path) -> None:
    newest = [0]
    for number in range(0, operations(tmp_path), 2):
        folder, journal = new(tmp_path / str(number)), Journal(tmp_path / f"{number}-store")
        journal.begin(folder)
        assert execute(folder, Moment(operation=number), observer=journal) == -signal.SIGKILL
        lose(folder, journal, random.Random(number))
        newest.append(max(rounds_saved(folder), default=0))
        assert newest[-1] >= max(newest) - 1  # the last name may be lost
    assert newest[-1] >= ROUNDS - 1
