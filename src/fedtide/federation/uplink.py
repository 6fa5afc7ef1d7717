"""What happens to updates on their way: the links they pass, and the rule that combines them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

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


def pass_links(
    links: Sequence[Link], r: Round, start: Tensor | None, memory: dict[str, Tensor], trip: Trip
) -> dict[str, Tensor | float]:
    """Let the updates of a round pass the links; ``r.W`` becomes what arrives, another tensor than the trained models.

    ``start`` [C, d] is where the training of ``r.W`` started; of ``memory``, the participants' vectors [C, d] by name, those of
    links change. Returns columns [C, 1] to record.
    """
    if not links or start is None:
        return {}
    rows, columns = slice(None) if trip.share.whole else trip.share.rows, dict[str, Tensor | float]()
    moved = r.W - start
    D = moved if trip.shared is None else moved[:, trip.shared]
    numbers = trip.plan.ids if trip.plan.starts is None else trip.plan.starts.numbers
    for link in links:
        name = link.settings.name
        own = Vectors({short: memory[memory_name(link, short)][rows] for short in link.memory})
        sending = Sending(
            ids=trip.plan.ids[rows],
            numbers=numbers[rows],
            memory=own,
            extra=trip.state.uplink[name],
            seed=r.randomness.seed,
            purpose=f"uplink.{name}" if trip.plan.purpose == "batches" else f"uplink.{name}.{trip.plan.purpose}",
            keys=trip.plan.keys,
        )
        found = contract.record(link, link.apply(D[rows], sending), len(sending.ids))
        for column, values in found.items():
            if not isinstance(values, Tensor):
                raise broken_contract(link, "apply", f"columns [c, 1], got a number for {column}")
            columns[column] = trip.share.spread(values)
    if trip.shared is not None:
        moved[:, trip.shared] = D
    r.W = moved.add_(start)
    return columns


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
