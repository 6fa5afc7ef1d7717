"""Schedules of commands on machines that share a folder, but no lock; ``make faults`` runs a hundred thousand."""

import contextlib

import pytest
from schedule import Here, simulate

from fedtide.core import files, locks, system
from fedtide.records import marks, run_directory, states

SCHEDULES = 100


class _Unfenced(dict):
    def __setitem__(self, lock, check):
        """Nobody is asked before a write."""


class Unfenced(Here):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.fences = _Unfenced()


def touch_unasked(lock):
    """The heartbeat of whoever has the note."""
    with contextlib.suppress(OSError):
        system.here.touch(lock.owner)


def violation(seeds, **variant):
    return next((found for seed in range(seeds) if (found := simulate(seed, **variant)).problems), None)


def test_every_schedule_ends_with_one_whole_run():
    for seed in range(SCHEDULES):
        outcome = simulate(seed)
        assert not outcome.problems, str(outcome)


def test_a_seed_repeats_its_schedule():
    first, second = simulate(7), simulate(7)
    assert (first.story, first.steps, first.counts) == (second.story, second.steps, second.counts)
    assert first.story != simulate(8).story


def test_the_rules_without_a_fence_let_a_paused_owner_damage_the_run(monkeypatch):
    """It writes when it wakes up, and keeps the note of its successor alive: the rules before locks had fences."""
    monkeypatch.setattr(locks.Lock, "_beat", touch_unasked)
    found = violation(200, here=Unfenced, fenced=False)
    assert found is not None
    print(found)
    assert any("takes over" in line for line in found.story), str(found)
    assert simulate(found.seed, Unfenced, False).story == found.story
