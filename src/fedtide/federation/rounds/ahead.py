"""Drawing ahead: a thread draws participants and batches of the next round while a GPU trains the present one.

Draws are functions of their keys, so it does not matter when they are made. What is needed only then, the model or the
losses, does: a round whose plan depends on it is planned when it begins, and what was drawn for another plan is dropped.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from fedtide.federation.rounds.plan import Drawn, RoundPlan, draws, plan_round
from fedtide.training.engine.plan import BatchPlan, plan_batches
from fedtide.world.timeline import Timeline

if TYPE_CHECKING:
    from fedtide.federation.types import Parts


class Ahead:
    """Plans the rounds of a run, the next one ahead of its time if asked to."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self._begun: tuple[Timeline, int, Future[RoundPlan], Future[BatchPlan]] | None = None

    def begin(self, t: int) -> None:
        """Begin to draw round ``t``, unless the run is over by then or the CPU has its hands full with training."""
        parts, timeline = self.parts, self.parts.timeline
        if parts.hardware.device.type == "cpu" or t >= timeline.rounds:
            return
        classes = parts.data.classes
        # Copies the labels once: the thread makes no call to the GPU, on which a graph may be recorded.
        classes(slice(0))
        planned = parts.workers.beside.submit(plan_round, parts.settings, timeline, parts.participation, t)

        def batches() -> BatchPlan:
            return plan_batches(*draws(planned.result()), torch.device("cpu"), classes)

        self._begun = timeline, t, planned, parts.workers.beside.submit(batches)

    def plan(self, t: int) -> RoundPlan:
        """The plan of round ``t``; raises what drawing it raised."""
        parts, begun, self._begun = self.parts, self._begun, None
        if begun:
            timeline, number, planned, batches = begun
            if number == t and timeline is parts.timeline:
                plan = planned.result()
                return replace(plan, drawn=Drawn(draws(plan), batches))
        if parts.hardware.device.type == "cpu":
            return plan_round(parts.settings, parts.timeline, parts.participation, t)
        # In the same thread, also for a run beside this one: a rule may have caches, so that it is asked once at a time.
        return parts.workers.beside.submit(plan_round, parts.settings, parts.timeline, parts.participation, t).result()
