"""Logs of the clients' rows: what a save writes, and that the two states do not depend on each other."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedtide.core.storage.sealed import peek_header
from fedtide.federation.saving import checkpoint
from fedtide.federation.saving.checkpoint import Generations, Saved
from fedtide.federation.state import initial_state, restored_state
from matrix import matrix
from support import assert_same, deal, federation, in_full, run_rounds, settings, timeline, vectors

CLIENTS, SIZE = 1000, 200
ROW = 8 + 4 * SIZE


class Run:
    """Rounds in which some clients change their rows."""

    def __init__(self) -> None:
        self.round, self.rows = 0, torch.zeros(CLIENTS, SIZE)
        self.written = torch.zeros(CLIENTS, dtype=torch.int64)

    def change(self, clients: Tensor) -> Saved:
        self.round += 1
        self.rows[clients] += torch.randn(len(clients), SIZE, generator=torch.Generator().manual_seed(self.round))
        self.written[clients] = self.round
        return Saved("run", self.round, {}, self.values())

    def values(self) -> dict[str, Any]:
        return {
            "memory": {"h": self.rows.clone()},
            "written": self.written.clone(),
            "seen": self.written > 0,
            "counts": self.written.clamp(max=1),
        }


def logs(folder: Path) -> dict[str, int]:
    """Bytes of each log that the newest state names."""
    header = peek_header(checkpoint.generations(folder)[0])
    assert header is not None
    return {name: mark["bytes"] for name, mark in header["rows"].items()}


def some(first: int, end: int) -> Tensor:
    return torch.arange(first, end)


def test_a_save_appends_what_has_changed_since_the_state_that_it_replaces(tmp_path: Path) -> None:
    run, states, sizes = Run(), Generations(tmp_path), list[dict[str, int]]()
    for clients in (some(0, 500), some(0, 10), some(10, 20), some(0, 5), some(600, 601)):
        states.save(run.change(clients))
        sizes.append(logs(tmp_path))
    first, second = "rows-00000001.npys", "rows-00000002.npys"
    assert [list(names) for names in sizes] == [[first], [second], [first], [second], [first]]
    grown = [sizes[2][first] - sizes[0][first], sizes[3][second] - sizes[1][second], sizes[4][first] - sizes[2][first]]
    assert [size // ROW for size in grown] == [20, 15, 6]
    assert {path.name for path in tmp_path.glob("rows-*")} == {first, second}
    found, _ = checkpoint.load(tmp_path, "run")
    assert found is not None
    assert torch.equal(in_full(found.values)["memory"]["h"], run.rows)


def test_clients_never_seen_take_no_space(tmp_path: Path) -> None:
    run = Run()
    checkpoint.Generations(tmp_path).save(run.change(some(3, 7)))
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 4 * ROW + 9 * CLIENTS + 5000


def test_a_log_that_is_twice_as_long_as_its_content_is_written_anew(tmp_path: Path) -> None:
    run, states = Run(), Generations(tmp_path)
    for _ in range(9):
        states.save(run.change(some(0, 300)))
        assert sum(path.stat().st_size for path in tmp_path.glob("rows-*")) < 2 * 2.01 * 300 * ROW
    assert len(list(tmp_path.glob("rows-*"))) == 2


def test_a_lost_log_leaves_the_other_state(tmp_path: Path) -> None:
    run, states, before = Run(), Generations(tmp_path), torch.zeros(0)
    for first in range(0, 60, 10):
        before = run.rows.clone()
        states.save(run.change(some(first, first + 20)))
    (name,) = logs(tmp_path)
    (tmp_path / name).unlink()
    found, skipped = checkpoint.load(tmp_path, "run")
    assert found is not None
    assert list(skipped.values()) == ["state-00000006.pt is damaged"]
    assert torch.equal(in_full(found.values)["memory"]["h"], before)


def test_rows_of_a_loaded_state_are_saved_again(tmp_path: Path) -> None:
    """State that was loaded from another folder; the log of that folder is not needed any more."""
    run = Run()
    checkpoint.Generations(tmp_path / "a").save(run.change(some(5, 400)))
    found, _ = checkpoint.load(tmp_path / "a", "run")
    assert found is not None
    checkpoint.Generations(tmp_path / "b").save(found)
    for path in (tmp_path / "a").iterdir():
        path.unlink()
    again, _ = checkpoint.load(tmp_path / "b", "run")
    assert again is not None
    assert torch.equal(in_full(again.values)["memory"]["h"], run.rows)


def test_logs_that_no_state_names_are_removed(tmp_path: Path) -> None:
    checkpoint.Generations(tmp_path).save(Run().change(some(0, 3)))
    (tmp_path / "rows-00000009.npys").write_bytes(b"of a process that was killed")
    checkpoint.sweep(tmp_path)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["rows-00000001.npys", "state-00000001.pt"]


WHO = [(0, 1, 2, 3, 4)] * 3 + [(0, 2, 3, 4), (0, 1, 2, 3, 4), (0, 1, 5), (0, 1, 5), (0, 5), (2, 3, 4, 5)]
"""Inside two sessions and between them clients leave, come back and join."""
COHORTS = [[0, 1], [1, 2], [2], [0, 3], [1, 4], [0, 5], [1], [5], [2]]


@pytest.mark.parametrize(
    ("memory", "on_session_start", "models"),
    matrix(["device", "disk"], ["reset", "keep"], [["global"], ["global", "all"]]),
)
def test_the_logs_hold_every_change(tmp_path: Path, memory: str, on_session_start: str, models: list[str]) -> None:
    """Of rows that participants write, that leave with a client, that a session clears, and of latest models."""
    chosen = settings(
        algorithm="fedssg",
        local={"epochs": 2, "batch_size": 3, "lr": 0.05, "momentum": 0.9, "momentum_scope": "client"},
        client_state={"on_session_start": on_session_start, "storage": memory},
        evaluation={"models": models},
        model={"name": "mlp", "widths": [40]},
    )
    world = timeline(
        deal((5, 2, 7, 4, 3, 6)), [{k: k for k in here} for here in WHO], session_of_round=[0] * 5 + [1] * 4
    )
    fed = federation(chosen, world, vectors(), cohorts=COHORTS)
    state, states = initial_state(fed.parts), Generations(tmp_path)
    for t in range(len(WHO)):
        with torch.no_grad():
            fed.run_round(state)
        states.save(Saved("run", t + 1, {}, state.tensors()))
        if t in (4, 6):  # as in a process that resumes
            states = Generations(tmp_path)
        found, skipped = checkpoint.load(tmp_path, "run")
        assert found is not None
        assert not skipped
        again = restored_state(fed.parts, found.values)
        assert_same(state, again)
        state = again if t in (4, 6) else state
    fed.parts.workers.close()


def test_a_session_does_not_write_rows_of_clients_never_seen(tmp_path: Path) -> None:
    world = timeline(deal((5, 2, 7, 4)), [dict.fromkeys(range(4), 0)] * 2, session_of_round=[0, 1])
    fed = federation(settings(algorithm="scaffold"), world, vectors(), cohorts=[[0, 1], [2]])
    state, _ = run_rounds(fed)
    assert state.written.tolist() == [2, 2, 2, 0]
