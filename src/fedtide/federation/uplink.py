"""What happens to updates on their way: the links they pass, and the rule that combines them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedtide.aggregation.base import Combined, Rule
from fedtide.algorithms.base import Round, Vectors
from fedtide.core.faults import broken_contract
from fedtide.engine import contract
from fedtide.engine.flat import weighted_sum
from fedtide.federation.plan import RoundPlan
from fedtide.federation.ranks import Share
from fedtide.federation.state import RunState
from fedtide.uplink.base import Link, Sending, memory_name

_NUMBERS = 1 << 22  # numbers of a few clients' vectors


def pass_links(
    links: Sequence[Link], r: Round, start: Tensor | None, memory: dict[str, Tensor], trip: Trip
) -> dict[str, Tensor | float]:
    """Let the updates of a round pass the links; ``r.W`` becomes what arrives, another tensor than the trained models.

    ``start`` [C, d] is where the training of ``r.W`` started; of ``memory``, the participants' vectors by name, those of links
    change. Returns columns [C, 1] and numbers to record.
    """
    if not links or start is None:
        return {}
    rows = slice(None) if trip.share.whole else trip.share.rows
    moved = r.W - start
    D = moved if trip.shared is None else moved[:, trip.shared]
    passed = []
    for link in links:
        sending = _sending(link, r, memory, trip, rows)
        found = contract.record(link, link.apply(D[rows], sending), len(sending.ids), "apply")
        if number := next((name for name, values in found.items() if not isinstance(values, Tensor)), None):
            raise broken_contract(link, "apply", f"columns [c, 1], got a number for {number}")
        columns = {name: trip.share.spread(column) for name, column in found.items() if isinstance(column, Tensor)}
        passed.append((link, sending, columns))
    if trip.shared is not None:
        moved[:, trip.shared] = D
    for update, trained, begun in zip(moved[rows], r.W[rows], start[rows], strict=True):
        if torch.equal(update, trained - begun):
            update.copy_(trained)
        else:
            update.add_(begun)
    r.W = moved
    recorded = dict[str, Tensor | float]()
    if trip.plan.purpose != "gradient":
        for link, sending, columns in passed:
            recorded |= contract.record(link, link.finish(columns, sending), len(r.ids), "finish")
    return recorded


def _sending(link: Link, r: Round, memory: dict[str, Tensor], trip: Trip, rows: slice) -> Sending:
    """The participants of some rows, as a link sees them."""
    plan, name = trip.plan, link.settings.name
    numbers = plan.ids if plan.starts is None else plan.starts.numbers
    return Sending(
        t=plan.t,
        participants=len(plan.ids),
        ids=plan.ids[rows],
        numbers=numbers[rows],
        memory=Vectors({short: memory[memory_name(link, short)][rows] for short in link.memory}),
        extra=trip.state.uplink[name],
        extras=trip.state.uplink,
        seed=r.randomness.seed,
        purpose=f"uplink.{name}" if plan.purpose == "batches" else f"uplink.{name}.{plan.purpose}",
        keys=plan.keys,
    )


def forget(links: Sequence[Link], memory: dict[str, Tensor], clients: Tensor) -> None:
    """Tell the links that their vectors of some clients, int64 [m], are about to be lost."""
    for link in links:
        if link.memory:
            own = {short: memory[memory_name(link, short)] for short in link.memory}
            few = max(1, _NUMBERS // sum(rows.shape[1] for rows in own.values()))
            for some in torch.split(clients, few):
                link.forget(Vectors({short: rows[some.to(rows.device)] for short, rows in own.items()}))


@dataclass(frozen=True)
class Trip:
    """Circumstances under which updates are sent: the state before the round, whose server tensors links change.

    ``shared``: the parameters that are sent, bool [d]; None for all.
    """

    plan: RoundPlan
    share: Share
    state: RunState
    shared: Tensor | None


@dataclass
class Combining:
    """A rule behind ``r.mean``. Models are combined as updates from ``start`` [C, d], once in a round.

    ``kept``: share of each participant's update that counts, of the last rows combined.
    """

    rule: Rule
    r: Round
    start: Tensor | None
    kept: Tensor | None = None
    _models: Tensor | None = field(default=None, init=False)

    def __call__(self, rows: Tensor) -> Tensor:
        if rows is not self.r.W or self.start is None:
            return self._combined(rows)
        if self._models is None:
            self._models = weighted_sum(self.r.weights[:, 0], self.start) + self._combined(rows - self.start)
        return self._models

    def _combined(self, rows: Tensor) -> Tensor:
        found, p = self.rule.combine(rows, self.r.weights[:, 0]), self.r.weights[:, 0]
        if not isinstance(found, Combined):
            raise broken_contract(self.rule, "combine", f"Combined, got {type(found).__name__}")
        contract.tensor(self.rule, "combine", found.update, rows, tuple(rows.shape[1:]))
        self.kept = contract.tensor(self.rule, "combine", found.kept, p, tuple(p.shape)).unsqueeze(1)
        return found.update
