"""Places on graphics cards: the list of cards is that of a program that stands for NVIDIA's."""

import os
import stat
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from test_jobs import Listed

from fedtide.runs.jobs.cards import VISIBLE, cards, place, share_cards
from fedtide.runs.jobs.jobs import Ask, run_in_workers
from fedtide.runs.jobs.processes import start_workers_early
from fedtide.settings.experiment import CompareSettings
from fedtide.settings.run import RunSettings

FakeCards = Callable[..., None]


@pytest.fixture
def fake_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCards:
    """Puts a list of cards on the machine: for each the megabytes in use, of 80,000."""
    start_workers_early()  # what forks them keeps its temporary folder; in tmp_path it would go with the test
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv(VISIBLE, raising=False)

    def put(*used: int) -> None:
        lines = "\n".join(f"{number}, GPU-{number}abc, {megabytes}, 80000" for number, megabytes in enumerate(used))
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\ncat <<END\n{lines}\nEND\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    return put


def test_cards_of_others_and_those_hidden_are_left_alone(
    fake_cards: FakeCards, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_cards(0, 60_000, 3, 0)
    assert [card.number for card in cards()] == ["0", "2", "3"]
    monkeypatch.setenv(VISIBLE, "3,1,GPU-0abc")
    assert [card.id for card in cards()] == ["GPU-3abc", "GPU-0abc"]
    monkeypatch.setenv(VISIBLE, "")
    assert cards() == []


def test_without_a_driver_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert cards() == []
    before = dict(os.environ)
    with place(2):
        assert dict(os.environ) == before


@pytest.mark.slow
def test_processes_spread_over_the_cards_and_share_them(fake_cards: FakeCards) -> None:
    """A card with memory in use is ours while one of our processes has a place on it."""
    fake_cards(0, 0)
    taken = []
    with ExitStack() as processes:
        for _ in range(4):
            processes.enter_context(place(2))
            taken.append(os.environ.pop(VISIBLE))  # as the next process finds it
            fake_cards(50_000, 50_000 if len(taken) > 1 else 0)
        assert taken == ["GPU-0abc", "GPU-1abc", "GPU-0abc", "GPU-1abc"]
        one_more = threading.Thread(target=processes.enter_context, args=[place(2)], daemon=True)
        one_more.start()
        one_more.join(0.3)
        assert one_more.is_alive()
        processes.pop_all().close()
        one_more.join(30)
    assert os.environ.pop(VISIBLE).startswith("GPU-")


class Pair(Listed):
    """Two jobs that are done at the same time."""

    def __init__(self) -> None:
        super().__init__(0, 1)
        self.begun = set[int]()

    def answer(self, job: int, question: Any) -> bool:
        self.begun.add(job)
        return len(self.begun) == 2


def which_card(job: int, ask: Ask) -> str:
    """A job: the card of its process, once both have begun."""
    while not ask("have both begun?"):
        pass
    return os.environ.get(VISIBLE, "none")


@pytest.mark.parametrize(("per_card", "wanted"), [(1, ["GPU-0abc", "GPU-1abc"]), (0, ["none", "none"])])
def test_every_worker_process_has_a_card_of_its_own(fake_cards: FakeCards, per_card: int, wanted: list[str]) -> None:
    fake_cards(0, 0)
    jobs = Pair()
    run_in_workers(which_card, jobs, 2, per_card)
    assert sorted(jobs.ends.values()) == wanted


def test_the_plan_of_a_comparison(fake_cards: FakeCards, small: Callable[..., RunSettings]) -> None:
    lines: list[str] = []
    chosen = small(engine={"accelerator": "auto"})
    assert share_cards([chosen], CompareSettings(), None, lines.append) == (0, 1 + 10**9)
    fake_cards(0, 70_000, 0)
    assert share_cards([chosen], CompareSettings(), None, lines.append) == (4, 8)
    assert share_cards([chosen], CompareSettings(runs_per_card=3), None, lines.append) == (3, 6)
    assert share_cards([chosen], CompareSettings(cluster="tcp://host:1"), None, lines.append)[0] == 1
    assert lines[0] == "2 GPUs, at most 4 concurrent runs on each"
    on_cpu = small(engine={"accelerator": "cpu"})
    assert share_cards([on_cpu], CompareSettings(), None, lines.append)[0] == 0
