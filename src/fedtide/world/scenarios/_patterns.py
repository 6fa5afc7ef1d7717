"""From who is present in each round to spans of rounds, and the permanent patterns of DPFL."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from fedtide.core.array_types import Bools
from fedtide.core.plugins import PluginSettings
from fedtide.world.scenarios._writing import Span, write_spans
from fedtide.world.scenarios.base import WorldInput
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


def spans_of(present: Bools, session_at_change: bool) -> list[Span]:
    """Spans of rounds between changes of who is present, bool [N, rounds]."""
    changed = (present[:, 1:] != present[:, :-1]).any(0)
    starts = [0, *(np.flatnonzero(changed) + 1).tolist()]
    ends = [*starts[1:], present.shape[1]]
    return [
        Span(np.flatnonzero(present[:, start]), end - start, number if session_at_change else 0)
        for number, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]


def write_presence(world: WorldInput, present: Bools, session_at_change: bool, scenario: str) -> Timeline:
    """The timeline of clients that keep their data and are present as listed, bool [N, rounds], somebody in every round.

    A session is evaluated on the labels that its clients hold.
    """
    return write_spans(world, spans_of(present, session_at_change), len(present), {"scenario": scenario})
