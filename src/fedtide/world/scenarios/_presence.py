"""Who is present when: patterns by round and by session."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from pydantic import Field

from fedtide.core.array_types import Bools, Ints
from fedtide.core.plugins import PluginSettings
from fedtide.core.randomness import generator
from fedtide.world.scenarios.base import Span, WorldInput, write_spans
from fedtide.world.timeline import Timeline


class PatternSettings(PluginSettings):
    rounds: int = Field(100, ge=1, description="communication rounds")
    num_clients: int = Field(10, ge=1, description="total clients")
    start: int = Field(50, ge=0, description="round of the first change, counted from 0")
    interval: int = Field(10, ge=1, description="rounds between changes")
    step: int = Field(1, ge=1, description="clients per change")
    session_at_change: bool = Field(False, description="begin a new session at every arrival or departure")


def changes(settings: PatternSettings) -> list[int]:
    """Number of changes up to each round, that round included."""
    return [0 if t < settings.start else (t - settings.start) // settings.interval + 1 for t in range(settings.rounds)]


def write_presence(world: WorldInput, present: Bools, session_at_change: bool, scenario: str) -> Timeline:
    """The timeline of clients that keep their data and are present as listed, bool [N, rounds].

    A session is evaluated on the labels that its clients hold.
    """
    changed = (present[:, 1:] != present[:, :-1]).any(0)
    starts = [0, *(np.flatnonzero(changed) + 1).tolist()]
    ends = [*starts[1:], present.shape[1]]
    spans = [
        Span(np.flatnonzero(present[:, start]), end - start, number if session_at_change else 0)
        for number, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]
    return write_spans(world, spans, len(present), {"scenario": scenario})


def cycle(num_devices: int, groups: int, sessions: int) -> Iterator[Ints]:
    """Groups of ``num_devices`` consecutive ids take turns: the whole population changes at each boundary."""
    for session in range(sessions):
        yield session % groups * num_devices + np.arange(num_devices)


def markov(
    first: Ints, pool: int, sessions: int, p_leave: float, arrivals: int, min_devices: int, seed: int
) -> Iterator[Ints]:
    """Devices leave and arrive at random between sessions; ``first`` are the ids of the first one, of 0..pool-1, ascending.

    At a boundary each present device leaves with probability ``p_leave``; if fewer than ``min_devices`` would remain, the
    leaving devices with the lowest ids stay. Then ``arrivals`` of the devices that were absent arrive, or all of them. A
    boundary's draw depends only on the world seed and the boundary's number.
    """
    present = first
    yield present
    for session in range(1, sessions):
        rng = generator(seed, "scenario.presence", session)
        leaves = rng.random(pool)[present] < p_leave
        missing = max(0, min_devices - int((~leaves).sum()))
        leaves[np.flatnonzero(leaves)[:missing]] = False
        absent = np.setdiff1d(np.arange(pool), present)
        arriving = rng.choice(absent, size=min(arrivals, len(absent)), replace=False)
        present = np.sort(np.concatenate([present[~leaves], arriving]))
        yield present
