"""What happens to updates on their way: the links they pass, and the rule that combines them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedtide.aggregation.base import Rule, shares
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

    ``kept`` [C, 1]: share of each participant's update that counts, of the models, or else of the last rows combined.
    """

    rule: Rule
    r: Round
    start: Tensor | None
    trip: Trip
    kept: Tensor | None = None
    _models: Tensor | None = field(default=None, init=False)
    _combinations: int = field(default=0, init=False)

    def __call__(self, rows: Tensor) -> Tensor:
        if rows is not self.r.W or self.start is None:
            update, kept = self._combined(rows)
            self.kept = kept if self._models is None else self.kept
            return update
        if self._models is None:
            update, self.kept = self._combined(rows - self.start)
            self._models = weighted_sum(self.r.weights[:, 0], self.start) + update
        return self._models

    def statistics(self, buffers: Tensor) -> Tensor:
        """BatchNorm's statistics [q] from those of the participants [C, q], as the rule declares; see :class:`Rule`."""
        if not buffers.numel() or self.kept is None:
            return self.r.weighted_mean(buffers)
        if self.rule.statistics == "rule":
            return self._combined(buffers)[0]
        p = self.r.weights[:, 0] * (self.kept[:, 0] if self.rule.statistics == "kept" else 1.0)
        here = buffers.isfinite().all(1) & (p > 0)
        return weighted_sum(shares(p[here]), buffers[here]) if here.any() else self.r.weighted_mean(buffers)

    def _combined(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """One row [...] from those of the participants, and what is kept of each, [C, 1]."""
        r, plan, p = self.r, self.trip.plan, self.r.weights[:, 0]
        extra = self.trip.state.uplink.get(f"aggregation.{self._combinations}", {})
        self._combinations += 1
        if rows.shape[1:] != r.w.shape:
            extra = self.rule.extra(rows[0])
        draws = r.randomness.generator(
            "uplink.bucket" if plan.purpose != "gradient" else "uplink.bucket.gradient", *(plan.keys or (plan.t,))
        )
        update, kept = self.rule.over(rows, p, extra, draws)
        return update, kept.unsqueeze(1)
