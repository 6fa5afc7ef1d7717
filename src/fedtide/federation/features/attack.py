"""Clients that attack: other samples before training, other updates after it."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from fedtide.federation.assembly.attackers import Attackers
from fedtide.federation.types import Chosen, Feature, Memory, RoundContext
from fedtide.training.engine.flat import Layout
from fedtide.world.dataset import Dataset
from fedtide.world.timeline import Timeline


class Attacking(Feature):
    """See :class:`Attackers`. In gradient rounds they attack as in the round that follows them."""

    name = "attack"
    updates = True

    def __init__(self, attackers: Attackers) -> None:
        self.attackers, self.rowwise = attackers, not attackers.attack.colludes

    def refuses(self, chosen: Chosen, timeline: Timeline, data: Dataset) -> str | None:
        attack, communication = self.attackers.attack, chosen.settings.communication.name
        if attack.forges and communication != "per_round":
            return (
                f"attack {attack.settings.name}: communication {communication} averages inside rounds, so clients have "
                "no update of their own; use communication: per_round"
            )
        return None

    def memory(self, chosen: Chosen, timeline: Timeline, layout: Layout) -> Memory:
        return Memory(each=1)  # what is sent instead

    def before(self, r: RoundContext) -> None:
        t = int(r.parts.timeline.session_starts[r.plan.session]) if r.rehearsal else r.plan.t
        r.notes[self.name] = attacking = self.attackers.rows(r.plan.ids, t)
        r.plan = replace(r.plan, shards=self.attackers.poisoned(r.plan.shards, attacking))

    def after(self, r: RoundContext) -> None:
        here = range(len(r.plan.ids))[r.here]
        r.received = self.attackers.forged(r.received, r.started, r.notes[self.name], here)

    def record(self, r: RoundContext) -> dict[str, Tensor | float]:
        attacker = torch.zeros_like(r.round.n)
        attacker[r.notes[self.name]] = 1.0
        return {"attacker": attacker}
