"""The links that updates pass on their way to the server."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from fedtide.core.discovery.faults import broken_contract
from fedtide.federation.assembly.leaks import what_leaks
from fedtide.federation.types import Chosen, Feature, Memory, Part, Parts, RoundContext, RunState
from fedtide.methods.accounting.cohorts import cohorts
from fedtide.methods.algorithms.base import Vectors, shared_parameters, shared_size
from fedtide.methods.uplink.base import Link, Sending, memory_name
from fedtide.training.engine import contract
from fedtide.training.engine.flat import Layout
from fedtide.world.dataset import Dataset
from fedtide.world.timeline import Timeline

_NUMBERS = 1 << 22  # numbers of a few clients' vectors


class Uplink(Feature):
    """Updates pass links in their order; a row that no link changes arrives as it was trained, to the bit."""

    name = "uplink"
    updates = rowwise = True

    def __init__(self, links: Sequence[Link]) -> None:
        self.links = links

    def refuses(self, chosen: Chosen, timeline: Timeline, data: Dataset) -> str | None:
        settings, links = chosen.settings, self.links
        if same := [pair for pair in pairwise(links) if pair[0].place == pair[1].place]:
            return (
                f"uplink lists {' and '.join(link.settings.name for pair in same for link in pair)}, which "
                "exclude each other; use one of them"
            )
        if settings.communication.name != "per_round":
            return (
                f"uplink {links[0].settings.name}: communication {settings.communication.name} averages inside rounds, so "
                "clients have no update of their own; use communication: per_round"
            )
        if any(link.memory for link in links) and settings.mode.name == "async":
            return "mode: async may use two results of a client at once; use links without client state"
        return what_leaks(chosen)

    def bind(self, parts: Parts) -> None:
        for link in self.links:
            link.bind(self.links, parts.layout)
            link.foresee(partial(cohorts, parts.participation, parts.timeline, parts.settings.seed))

    def rows(self, chosen: Chosen, layout: Layout) -> dict[str, int]:
        size = shared_size(chosen.algorithm, layout)
        return {memory_name(link, name): link.width(name, size) for link in self.links for name in link.memory}

    def memory(self, chosen: Chosen, timeline: Timeline, layout: Layout) -> Memory:
        known = partial(cohorts, chosen.participation, timeline, chosen.settings.seed)
        before = sum(link.vectors(known) for link in self.links)
        noise = Part(
            f"noise of earlier rounds, {before} vectors of {layout.size:,} numbers each",
            2 * 8 * before * layout.size,  # float64, and anew in every round
            "give uplink.noise fewer bands or decays, or choose a smaller model",
        )
        return Memory(each=1, others=(noise,) if before else ())  # what arrives besides what was trained

    def bits(self, numbers: int) -> int | None:
        found = None
        for link in self.links:
            bits = link.bits(numbers)
            found = found if bits is None else bits
        return found

    def state(self, parts: Parts, saved: dict[str, Any] | None = None) -> dict[str, Any]:
        size = shared_size(parts.algorithm, parts.layout)
        return {link.settings.name: link.extra(size) for link in self.links}

    def forget(self, parts: Parts, state: RunState, clients: Tensor, left: bool) -> None:
        """Tell the links that their vectors are about to be lost."""
        for link in self.links:
            if link.memory and not left:
                own = {short: state.memory[memory_name(link, short)] for short in link.memory}
                few = max(1, _NUMBERS // sum(rows.shape[1] for rows in own.values()))
                for some in torch.split(clients, few):
                    link.forget(Vectors({short: rows[some.to(rows.device)] for short, rows in own.items()}))

    def after(self, r: RoundContext) -> None:
        here, shared = r.here, shared_parameters(r.parts.algorithm, r.parts.layout)
        moved = r.received - r.started
        D = moved if shared is None else moved[:, shared]
        passed = []
        for link in self.links:
            sending = self._sending(link, r)
            found = contract.record(link, link.apply(D[here], sending), len(sending.ids), "apply")
            if number := next((name for name, values in found.items() if not isinstance(values, Tensor)), None):
                raise broken_contract(link, "apply", f"columns [c, 1], got a number for {number}")
            columns = {name: r.share.spread(column) for name, column in found.items() if isinstance(column, Tensor)}
            passed.append((link, sending, columns))
        if shared is not None:
            moved[:, shared] = D
        for update, trained, begun in zip(moved[here], r.received[here], r.started[here], strict=True):
            if torch.equal(update, trained - begun):
                update.copy_(trained)
            else:
                update.add_(begun)
        r.received = moved
        r.notes[self.name] = recorded = dict[str, Tensor | float]()
        for link, sending, columns in () if r.rehearsal else passed:
            recorded |= contract.record(link, link.finish(columns, sending), len(r.plan.ids), "finish")

    def record(self, r: RoundContext) -> dict[str, Tensor | float]:
        found: dict[str, Tensor | float] = r.notes[self.name]
        return found

    def _sending(self, link: Link, r: RoundContext) -> Sending:
        """This process's participants, as a link sees them."""
        plan, name, kept = r.plan, link.settings.name, r.state.features[self.name]
        numbers = plan.ids if plan.starts is None else plan.starts.numbers
        return Sending(
            t=plan.t,
            participants=len(plan.ids),
            ids=plan.ids[r.here],
            numbers=numbers[r.here],
            memory=Vectors({short: r.memory[memory_name(link, short)][r.here] for short in link.memory}),
            extra=kept[name],
            extras=kept,
            seed=r.parts.randomness.seed,
            purpose=f"uplink.{name}" if plan.purpose == "batches" else f"uplink.{name}.{plan.purpose}",
            keys=plan.keys,
        )
