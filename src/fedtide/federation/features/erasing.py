"""A request to erase clients, as an eraser sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from fedtide.core.array_types import Ints
from fedtide.federation.features.attack import Attacking
from fedtide.federation.features.worlds import held_by
from fedtide.federation.gradient_rounds import GradientRounds
from fedtide.federation.rounds.plan import JobStarts, RoundPlan, of_round, participants, rate_at
from fedtide.federation.rounds.round import prepare
from fedtide.federation.rounds.training import train_clients
from fedtide.federation.traffic import BYTES
from fedtide.federation.types import Parts, RunState
from fedtide.methods.costs.wireless import Segment
from fedtide.methods.erasers.base import PastRound
from fedtide.methods.initializers.base import Boundary, Start, revised
from fedtide.settings.groups.local import LocalSettings, Unit
from fedtide.training.engine.flat import Layout
from fedtide.training.engine.passes.evaluation import full_gradient
from fedtide.training.engine.plan import plan_batches
from fedtide.world.timeline import Assignment, Timeline


@dataclass
class Step:
    """See :class:`fedtide.methods.erasers.base.Erasing`.

    Attributes:
        world: the timeline as planned. stored: rounds and models kept for the request, by name. ends: final models of
            the sessions after the pilot, by number. twin: state of the run without the clients, if it is known.
        spans: see :meth:`Worlds.spans`.
        costs: gradients on batches, of the ``retained`` and of the ``erased``, bytes ``down`` and ``up``, and ``rounds``.
        visits: clients that exchanged a model for it, and the samples that each of them processed.
    """

    parts: Parts
    state: RunState
    world: Timeline
    ids: list[int]
    t: int
    spans: list[tuple[int, float]]
    others: list[int]
    stored: dict[str, Tensor]
    ends: dict[int, Start]
    twin: RunState | None
    factor: float = 0.0
    facts: dict[str, Any] = field(default_factory=dict)
    rebuilt: dict[int, Tensor] = field(default_factory=dict)
    costs: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("gradients_retained", "gradients_erased", "down", "up", "rounds"), 0)
    )
    visits: list[tuple[Sequence[int], list[float]]] = field(default_factory=list)

    @property
    def w(self) -> Tensor:
        return self.state.w

    @property
    def layout(self) -> Layout:
        return self.parts.layout

    @property
    def local(self) -> LocalSettings:
        return self.parts.settings.local

    @property
    def present(self) -> set[int]:
        return {*self.world.at(self.t - 1).clients.tolist(), *self.world.at(self.t).clients.tolist()}

    @property
    def models(self) -> list[int]:
        return sorted(
            int(name.split(".")[1]) for name in self.stored if name.startswith("model.") and name.endswith("w")
        )

    def clean(self, t: int) -> bool:
        return not any(first < t < until for first, until in self.spans)

    def past(self, t: int) -> PastRound:
        ids = self.stored[f"round.{t}.ids"].tolist()
        rows = [row for row, client in enumerate(ids) if client not in self.ids]
        return PastRound(t, [ids[row] for row in rows], self.stored[f"round.{t}.W"][rows], self.stored[f"round.{t}.w"])

    def model(self, t: int) -> Tensor:
        self.state.b = self.stored[f"model.{t}.b"].clone()
        return self.stored[f"model.{t}.w"]

    def rows(self, name: str) -> Tensor:
        return self.state.memory[f"erasure.{name}"].to(self.w.device)

    def session(self, t: int) -> int:
        return int(self.world.session_of_round[t])

    def next_session(self, w: Tensor, session: int) -> Tensor:
        parts, pilot, b = self.parts, self.world.pilot, self.state.b
        self.rebuilt[session] = w
        if session + 1 <= pilot:
            carries = session + 1 < pilot or parts.initializer.settings.post_pilot_start == "carry"
            return w if carries else parts.w0
        known = {z: (self.rebuilt.get(z, end[0]), end[1]) for z, end in self.ends.items() if z < session}
        first = int(self.world.session_starts[session + 1])
        boundary = Boundary(
            session=session + 1,
            pilot=pilot,
            w=w,
            b=b,
            w0=parts.w0,
            b0=parts.b0,
            devices=self.world.at(first).clients.tolist(),
            store=revised(self.state.initializer, {**known, session: (w, b)}),
            lr=self.local.lr,
            old_labels=torch.zeros(0),
            services=GradientRounds(parts, self.state, first),
        )
        return parts.initializer.construct(boundary)[0]

    def weights(self, ids: Sequence[int], t: int) -> Tensor:
        shards = [self._shard(client, t) for client in ids]
        n = torch.tensor([len(shard) for shard in shards], dtype=torch.float64)
        return self.parts.weighting.weights(n, self.parts.data.label_counts(shards)).to(self.w)

    def train(
        self, ids: Sequence[int], w: Tensor, t: int, amount: int | None = None, unit: Unit | None = None, key: int = 0
    ) -> Tensor:
        parts, local = self.parts, self.local if amount is None else self.local.with_work(amount, unit)
        held = Assignment(
            *(torch.tensor(part).numpy() for part in (list(ids), [held_by(self.world, client, t) for client in ids]))
        )
        rows, lr = len(ids), rate_at(self.local, self.world, t)
        starts = JobStarts(
            numbers=list(ids),
            w=w.expand(rows, -1),
            b=self.state.b.expand(rows, -1),
            lr=[lr] * rows,
            staleness=[0] * rows,
            keeps=[False] * rows,
        )
        plan = RoundPlan(
            **participants(self.world, held),
            **{**of_round(parts.settings, self.world, t, self.world.at(t)), "local": local},
            departed=None,
            participation_fraction=1.0,
            purpose="erase",
            keys=(t, key) if key else (t,),
            starts=starts,
        )
        scratch = replace(self.state, counts=self.state.counts.clone())
        r = prepare(parts, scratch, replace(plan, shards=self._seen(plan.shards, ids, t)))
        train_clients(r)
        who = "erased" if set(ids) <= set(self.ids) else "retained"
        done = r.cohort.plan
        self.costs[f"gradients_{who}"] += sum(done.steps)
        self.costs["rounds"] += 1
        self._exchange(ids, [len(done.of(row)[0]) for row in range(len(ids))])
        return r.received

    def ascent_batches(self, client: int, epoch: int, size: int | None) -> list[Ints]:
        t, local = self.t - 1, self.local.with_work(1, "epochs")
        local = local if size is None else local.model_copy(update={"batch_size": size})
        shards, parts = self._seen([self._shard(client, t)], [client], t), self.parts
        where = parts.settings.seed, "erase.ascent", (self.t, epoch), torch.device("cpu"), parts.data.classes
        plan = plan_batches(shards, [client], local, float(len(shards[0])), *where)
        return [batch.numpy() for batch in torch.split(*plan.of(0))]

    def gradient(self, client: int, w: Tensor, batch: Ints) -> Tensor:
        self.costs["gradients_erased"] += 1
        ids, samples = self.visits[-1]
        samples[ids.index(client)] += len(batch)
        data, parts = [batch], self.parts
        return full_gradient(parts.workers, w, self.state.b, data, len(batch), parts.data.label_counts(data).to(w))[0]

    def drawn(self, number: int) -> Tensor:
        return self.parts.algorithm.problem.drawn(number).to(self.w)

    def counterfactual(self) -> Tensor:
        assert self.twin is not None, 'an eraser that asks for it declares memory = "counterfactual"'
        return self.twin.w

    def negate(self, factor: float) -> None:
        self.factor = factor  # what they compute is charged in the round
        self.charge_exchange()

    def note(self, **facts: object) -> None:
        self.facts |= facts

    def charge_exchange(self) -> None:
        self._exchange(self.ids, [0] * len(self.ids))

    def settle(self, retrained: bool) -> None:
        """Add what the request has cost to the run's totals; ``retrained``: training the twin."""
        if self.factor:  # its clients take part in the round
            return
        totals, wireless, size = self.state.totals, self.parts.wireless, BYTES * self.layout.size
        totals["bytes_down"] += self.costs["down"]
        totals["bytes_up"] += self.costs["up"]
        if retrained and self.twin is not None:
            for name in ("latency", "energy"):
                totals[name] += self.twin.totals[name]
        for number, (ids, samples) in enumerate(self.visits if wireless else ()):
            assert wireless
            cost = wireless.round_cost(
                (self.t, number), ids, [Segment([*range(len(ids))], samples)], size, size, "erase"
            )
            totals["latency"] += cost.latency_s
            totals["energy"] += cost.energy_J

    def _exchange(self, ids: Sequence[int], samples: list[float]) -> None:
        """Each of some clients receives a model and sends one, having processed so many samples."""
        self.visits.append((ids, samples))
        for way in ("down", "up"):
            self.costs[way] += BYTES * self.layout.size * len(ids)

    def _shard(self, client: int, t: int) -> Ints:
        return self.world.shards[held_by(self.world, client, t)]

    def _seen(self, shards: Sequence[Ints], ids: Sequence[int], t: int) -> Sequence[Ints]:
        """The samples as the clients train on them, attackers included."""
        attack = self.parts.feature(Attacking)
        return shards if attack is None else attack.attackers.poisoned(shards, attack.attackers.rows(ids, t))
