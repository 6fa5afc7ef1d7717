"""The aggregation rule that takes the place of the weighted mean."""

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from fedtide.federation.rounds.divergence import not_finite
from fedtide.federation.types import Chosen, Feature, Memory, Parts, RoundContext, RunState
from fedtide.methods.aggregation.base import Rule, shares
from fedtide.records.run_directory import LEFT_OUT
from fedtide.training.engine.flat import Layout, weighted_sum
from fedtide.world.clients import ClientNames
from fedtide.world.dataset import Dataset
from fedtide.world.timeline import Timeline


class AggregationRule(Feature):
    """Stands behind the means of a round; what it keeps at the server begins anew with every session."""

    name = "aggregation"
    updates = True

    def __init__(self, rule: Rule) -> None:
        self.rule = rule

    def refuses(self, chosen: Chosen, timeline: Timeline, data: Dataset) -> str | None:
        settings, algorithm = chosen.settings, chosen.algorithm
        what = f"aggregation {settings.aggregation.name}"
        if "rules" not in algorithm.admits:
            return (
                f"{what}: algorithm {settings.algorithm.name} adds up the participants' updates itself, or requires "
                "each of them; use aggregation: mean, or an algorithm like fedavg, fedprox, fedcm or fedwcm"
            )
        if settings.mode.name == "async" and algorithm.buffer < 3:
            return f"{what} requires at least three results per update; set algorithm.buffer to 3 or more"
        return None

    def memory(self, chosen: Chosen, timeline: Timeline, layout: Layout) -> Memory:
        return Memory(each=1)  # updates

    def state(self, parts: Parts) -> dict[str, Any]:
        return self.rule.begin(parts.w0)

    def begin(self, parts: Parts, state: RunState, t: int, session: bool, replaced: bool) -> bool:
        if session:
            state.features[self.name] = self.rule.begin(state.w)
        return replaced

    def after(self, r: RoundContext) -> None:
        r.round.means.rule = r.notes[self.name] = Combining(self.rule, r, r.state.features[self.name])

    def record(self, r: RoundContext) -> dict[str, Tensor | float]:
        kept = r.notes[self.name].kept
        if kept is None:
            return {}
        lost = [r.plan.ids[row] for row in not_finite(r)] if (kept == 0).any() else []
        if lost:
            names = ClientNames.of(r.parts.timeline, r.parts.data).shown(lost)
            r.events.append({"kind": LEFT_OUT, "round": r.plan.t + 1, "clients": names})
        return {"kept": kept}


@dataclass
class Combining:
    """A rule in one round. Models are combined as updates from where their training started, once.

    ``extras``: what the rule keeps for each combination of a round. ``kept`` [C, 1]: share of each participant's update that
    counts, of the models, or else of the last rows combined.
    """

    rule: Rule
    r: RoundContext
    extras: dict[str, dict[str, Tensor]]
    kept: Tensor | None = None
    _models: Tensor | None = field(default=None, init=False)
    _combinations: int = field(default=0, init=False)

    def models(self) -> Tensor:
        """The participants' models as one, [d]."""
        if self._models is None:
            update, self.kept = self._combined(self.r.received - self.r.started)
            self._models = weighted_sum(self.r.round.weights[:, 0], self.r.started) + update
        return self._models

    def rows(self, rows: Tensor) -> Tensor:
        """Other rows of the participants [C, d] as one, [d]."""
        update, kept = self._combined(rows)
        self.kept = kept if self._models is None else self.kept
        return update

    def statistics(self, buffers: Tensor) -> Tensor:
        """BatchNorm's statistics [q] from those of the participants [C, q], as the rule declares; see :class:`Rule`."""
        r = self.r.round
        if not buffers.numel() or self.kept is None:
            return r.weighted_mean(buffers)
        if self.rule.statistics == "rule":
            return self._combined(buffers)[0]
        p = r.weights[:, 0] * (self.kept[:, 0] if self.rule.statistics == "kept" else 1.0)
        here = buffers.isfinite().all(1) & (p > 0)
        return weighted_sum(shares(p[here]), buffers[here]) if here.any() else r.weighted_mean(buffers)

    def _combined(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """One row [...] from those of the participants, and what is kept of each, [C, 1]."""
        r, plan = self.r.round, self.r.plan
        extra = self.extras.get(str(self._combinations), {})
        self._combinations += 1
        if rows.shape[1:] != r.w.shape:
            extra = self.rule.extra(rows[0])
        purpose = "uplink.bucket.gradient" if self.r.rehearsal else "uplink.bucket"
        draws = self.r.parts.randomness.generator(purpose, *(plan.keys or (plan.t,)))
        update, kept = self.rule.over(rows, r.weights[:, 0], extra, draws)
        return update, kept.unsqueeze(1)
