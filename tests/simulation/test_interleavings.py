"""Schedules of the protocols between processes; ``make faults`` runs a hundred thousand."""

import contextlib

import pytest
import schedule
import unshared

from fedtide.core import locks, system
from fedtide.runs.jobs.cluster import home, worker


@pytest.mark.parametrize(("simulate", "schedules"), [(schedule.simulate, 70), (unshared.simulate, 30)])
def test_every_schedule_ends_with_one_whole_run(simulate, schedules):
    for seed in range(schedules):
        outcome = simulate(seed)
        assert not outcome.problems, str(outcome)


@pytest.mark.parametrize("simulate", [schedule.simulate, unshared.simulate])
def test_a_seed_repeats_its_schedule(simulate):
    first, second = simulate(7), simulate(7)
    assert (first.story, first.steps, first.counts) == (second.story, second.steps, second.counts)
    assert first.story != simulate(8).story


class _Unfenced(dict):
    def __setitem__(self, lock, check):
        """Nobody looks at the note before a write."""


class _Here(schedule.Here):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.fences = _Unfenced()


def found(simulate, first=0):
    """The first schedule from this one on in which something does not hold; it is the same again."""
    outcome = next(outcome for seed in range(first, first + 300) if (outcome := simulate(seed)).problems)
    assert simulate(outcome.seed).story == outcome.story
    print(outcome)
    return outcome


def test_without_a_fence_a_paused_owner_damages_the_run(monkeypatch):
    """It writes when it wakes up, and its heart beats for whoever has the note: the rules before locks had fences."""

    def beat(lock):
        with contextlib.suppress(OSError):
            system.here.touch(lock.owner)

    monkeypatch.setattr(locks.Lock, "_beat", beat)
    outcome = found(lambda seed: schedule.simulate(seed, _Here, fenced=False))
    assert any("paused for" in line for line in outcome.story)
    assert any("takes over" in line for line in outcome.story)


def test_a_question_that_nobody_answers_is_found(monkeypatch):
    """A worker's child process would wait for ever when its command is lost."""
    monkeypatch.setattr(
        worker._Call, "reply", lambda call, content: content is worker.NOBODY or call.child.send(content)
    )
    assert "nobody finishes" in found(unshared.simulate).problems[0]


def test_a_command_that_gives_a_run_away_which_it_has_lost_is_found(monkeypatch):
    """It was paused while it read the records, does not look at the note afterwards, and the owner goes on."""
    monkeypatch.setattr(home, "fence", lambda path: None)
    assert "a former owner changes" in found(unshared.simulate, 1300).problems[0]
