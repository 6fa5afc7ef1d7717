"""One communication round: cohort, local training, exchanges, the server's step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtide.algorithms.round import Passed, Round, Vectors
from fedtide.costs.wireless import Stretch
from fedtide.engine.curvature import fisher_diagonal, hessian_diagonal
from fedtide.engine.evaluation import full_gradient, pass_through
from fedtide.engine.flat import weighted_sum
from fedtide.engine.local import Cohort, momentum_steps
from fedtide.engine.models import renewed_statistics, with_models
from fedtide.engine.plan import Plan, make_plan, step_count
from fedtide.exchange.base import Schedule
from fedtide.federation.scoring import evaluates
from fedtide.federation.state import RunState
from fedtide.randomness import generator
from fedtide.settings import LocalSettings

if TYPE_CHECKING:
    from fedtide.federation.federation import Federation

Ints = NDArray[np.int64]
Result = TypeVar("Result")

_ROWS = 1 << 20
"""Numbers in a temporary of a few rows."""


@dataclass(frozen=True)
class Call:
    """Who trains in a round, and under which key.

    Attributes:
        ids: participants, ascending. subsets: number of the shard each holds. shards: positions in the training set.
        population: clients present. mean_size: their mean number of samples.
        expected: expected share of the population that is drawn.
        session, session_round: where in the timeline. t: round of the run, for what changes with time. at: row of the
            timeline that says who is present.
        lr: learning rate. local: settings of training; those of the run, or with another amount of work, batch and rate.
        purpose, keys: of the batches' draws.
    """

    ids: list[int]
    subsets: list[int]
    shards: Sequence[Ints]
    population: int
    mean_size: float
    expected: float
    session: int
    session_round: int
    t: int
    at: int
    lr: float
    local: LocalSettings
    purpose: str
    keys: tuple[int, ...]


@dataclass(frozen=True)
class Played:
    """What a round produced: the new model, the round's record, and its facts.

    Attributes:
        w, b: the new model. participants: mean of the local models. members: the local models. train_loss, drift: of the
            cohort.
        stretches: who trained on how many samples before each exchange of models, in order.
        length: L, local steps of a client of mean size.
        clients: columns of numbers about the participants to keep, empty if there are none. server: numbers about the server.
    """

    w: Tensor
    b: Tensor
    participants: tuple[Tensor, Tensor]
    members: tuple[Tensor, Tensor]
    train_loss: float
    drift: float
    stretches: list[Stretch]
    length: int
    clients: dict[str, Sequence[float]]
    server: dict[str, float]


class _Services:
    """Engine services for one round."""

    def __init__(self, federation: Federation, state: RunState, call: Call, counts: Tensor) -> None:
        self._federation, self._state, self._call, self._counts = federation, state, call, counts
        self.buffers = state.b  # the participants' [C, q], once there are any

    def full_gradient(self, points: Tensor, shards: Sequence[Ints] | None = None) -> Tensor:
        fed, data = self._federation, self._call.shards if shards is None else shards
        counts = self._counts if shards is None else _prior(fed, fed.label_counts(shards), self._call.at, points)
        batch = fed.settings.evaluation.batch_size
        return full_gradient(fed.workers, points, self._state.b, list(data), batch, counts)

    def hessian_diagonal(self, points: Tensor, probes: int | None, first: int = 0) -> Tensor:
        fed, call, size = self._federation, self._call, points.shape[-1] - first

        def directions(row: int) -> Tensor:
            if probes is None:
                return torch.eye(size, dtype=points.dtype, device=points.device)
            signs = self.generator(f"{call.purpose}.probes", *call.keys, call.ids[row]).integers(0, 2, (probes, size))
            return (2 * torch.from_numpy(signs) - 1).to(points).div_(probes**0.5)

        batch = fed.settings.evaluation.batch_size
        return hessian_diagonal(fed.workers, points, self._state.b, call.shards, batch, self._counts, directions, first)

    def fisher_diagonal(self, points: Tensor, group: int = 1, first: int = 0) -> Tensor:
        fed, call = self._federation, self._call
        return fisher_diagonal(fed.workers, points, self._state.b, call.shards, group, self._counts, first)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self._federation.data.input_shape

    def with_models(self, points: Tensor, use: Callable[[int, Callable[[Tensor], Tensor]], Result]) -> list[Result]:
        fed = self._federation

        def ready(row: int, logits: Callable[[Tensor], Tensor]) -> Result:
            return use(row, lambda unit: logits(fed.task.lay_out(fed.invented.inputs(unit))))

        return with_models(fed.workers, points, self._state.b, ready)

    def invent(self, unit: Tensor, labels: Tensor) -> Ints:
        return self._federation.invented.add(self._state.extra, unit, labels)

    def renew_statistics(self, points: Tensor) -> None:
        fed, own = self._federation, [self.positions(subset) for subset in self._call.subsets]
        batch = fed.settings.local.batch_size
        self.buffers.copy_(renewed_statistics(fed.workers, points, self.buffers, own, batch))

    def positions(self, shard: int) -> Ints:
        return self._federation.timeline.shards[shard]

    def labels(self, positions: Ints) -> Ints:
        return self._federation.labels[positions]

    def generator(self, purpose: str, *keys: int) -> np.random.Generator:
        return generator(self._federation.settings.seed, purpose, *keys)

    def passed(self, point: Tensor, shards: Sequence[Ints] | None = None) -> list[Passed]:
        fed, data = self._federation, list(self._call.shards if shards is None else shards)
        found = pass_through(fed.workers, point, self._state.b, data, fed.settings.evaluation.batch_size)
        return [Passed(*part) for part in found]

    def client_mean(self, name: str) -> Tensor:
        rows = self._state.memory[name]
        return rows.mean(0).to(self._state.w.device)

    def population_counts(self) -> Tensor:
        return self._federation.population_counts(self._call.at)


def _prior(fed: Federation, counts: Tensor, at: int, like: Tensor) -> Tensor:
    """The clients' samples per class [C, L] as the objective sees them: those of each, or of everybody in a round."""
    return (fed.population_counts(at).sum(0).expand_as(counts) if fed.task.objective.pooled else counts).to(like)


def train_round(federation: Federation, state: RunState, call: Call) -> Played:
    """Play one round on ``state``: its memories, counts and totals are updated, ``w`` and ``b`` are returned.

    Sums over clients run in ascending id order, so nothing depends on which worker finished first.
    """
    fed, settings = federation, federation.settings
    device, dtype, local = state.w.device, state.w.dtype, call.local
    ids = torch.tensor(call.ids, dtype=torch.int64)
    clients = len(call.ids)
    fed.invented.show(state.extra)
    call = replace(call, shards=fed.algorithm.shards(call.ids, call.subsets, call.shards, state.extra))
    plan = make_plan(
        call.shards, call.ids, local, call.mean_size, settings.seed, call.purpose, call.keys, device, fed.labels
    )

    def column(values: Tensor) -> Tensor:
        return values.unsqueeze(-1).to(device, dtype)

    n = torch.tensor([len(shard) for shard in call.shards], dtype=torch.float64)
    steps = torch.tensor(plan.steps, dtype=torch.float64)
    counts = fed.label_counts(call.shards)
    prior = _prior(fed, counts, call.at, state.w)
    services = _Services(fed, state, call, prior)
    state.counts[ids] += 1
    home = next(iter(state.memory.values())).device if state.memory else device
    at_home = ids.to(home)
    memory = {name: rows[at_home].to(device) for name, rows in state.memory.items()}
    client = Vectors({name: memory[name] for name in fed.algorithm.client})
    r = Round(
        t=call.t,
        rounds=fed.timeline.rounds,
        session=call.session,
        session_round=call.session_round,
        lr=call.lr,
        lr0=local.lr,
        w=state.w,
        W=state.w.expand(clients, -1),
        server=Vectors(state.server),
        client=client,
        extra=state.extra,
        ids=call.ids,
        subsets=call.subsets,
        n=column(n),
        omega=column(n / call.mean_size),
        steps=column(steps),
        effective_steps=column(momentum_steps(steps, local.momentum, local.nesterov)),
        mean_steps=step_count(int(np.ceil(call.mean_size)), call.mean_size, local),
        weights=column(fed.weighting.weights(n, counts)),
        population=call.population,
        clients=fed.timeline.num_clients,
        participation=call.expected,
        counts=column(state.counts[ids]),
        seen=column(state.seen[ids]),
        label_counts=counts.to(device, dtype),
        layout=fed.layout,
        local=local,
        services=services,
        seed=settings.seed,
    )
    schedule = fed.exchange.schedule(r, settings.seed)
    if schedule.idle:
        plan = _rest(plan, r, schedule)
    start = fed.algorithm.start(r)
    r.W = start.expand(clients, -1).clone()
    cohort = Cohort(
        W=r.W,
        buffers=state.b.expand(clients, -1).clone(),
        momentum=_momentum(memory, r.W, local.momentum),
        b=state.b,
        plan=plan,
        label_counts=prior,
        lr=call.lr,
        added=fed.algorithm.local(r),
        terms=[*fed.algorithm.terms(r), *fed.initialiser.terms(state.initialiser)],
        direction=None,
        memories=[],
        losses=torch.zeros(clients, dtype=dtype, device=device),
    )
    if fed.algorithm.has_direction:
        cohort.direction = lambda grad, W, rows: fed.algorithm.direction(grad, W, r.rows(rows))
        cohort.memories = [rows for _, rows in client]
    stretches = _advance(fed, cohort, r, schedule)
    services.buffers = cohort.buffers
    drift = _drift(cohort.W, state.w)
    w = fed.algorithm.finish(r)
    w = fed.algorithm.after_round(r, w)
    weights = r.weights[:, 0]
    b = weighted_sum(weights, cohort.buffers)
    if "latest" in memory:
        memory["latest"] = cohort.W
    if cohort.momentum is not None and "momentum" in memory:
        memory["momentum"] = cohort.momentum
    for name, rows in memory.items():
        state.memory[name][at_home] = rows.to(home)
    state.seen[ids] = True
    worked = n * torch.tensor([count > 0 for count in plan.steps])
    losses = cohort.losses.to(torch.float64).cpu() / steps.clamp(min=1)
    loss = float((losses * worked).sum() / worked.sum().clamp(min=1))
    participants = (r.mean(cohort.W), b) if evaluates(fed, "participants") else (w, b)
    kept = {name: column[:, 0].tolist() for name, column in fed.algorithm.record(r).items()}
    recorded: dict[str, Sequence[float]] = {"client": call.ids, **kept} if kept else {}
    members = (cohort.W, cohort.buffers)
    observed = fed.algorithm.observe(r)
    return Played(w, b, participants, members, loss, drift, stretches, r.mean_steps, recorded, observed)


def _drift(W: Tensor, w: Tensor) -> float:
    """Mean distance of the rows of ``W`` [C, d] from ``w`` [d]; a few rows at a time, so that no second cohort is held."""
    few = torch.split(W, max(1, _ROWS // len(w)))
    return float(torch.cat([torch.linalg.vector_norm(rows - w, dim=-1) for rows in few]).mean())


def _momentum(memory: dict[str, Tensor], W: Tensor, coefficient: float) -> Tensor | None:
    """Momentum rows [C, d] that training starts with: kept ones, zeros, or none without momentum."""
    if coefficient == 0.0:
        return None
    return memory["momentum"] if "momentum" in memory else torch.zeros_like(W)


def _rest(plan: Plan, r: Round, schedule: Schedule) -> Plan:
    """The plan without those who sit the round out; ``r`` is told, and leaves them out of its average unless they count."""
    trains = torch.ones_like(r.steps)
    trains[schedule.idle] = 0
    r.steps, r.effective_steps = r.steps * trains, r.effective_steps * trains
    if not schedule.idle_count and len(schedule.idle) < len(r.ids):
        r.weights = r.weights * trains / (r.weights * trains).sum()
    return plan.without(schedule.idle)


def _advance(fed: Federation, cohort: Cohort, r: Round, schedule: Schedule) -> list[Stretch]:
    """Local steps, cut where clients average inside the round; the last stretch ends with the exchange of the round's end."""
    stretches = []
    trained = np.zeros(len(r.ids), dtype=np.int64)  # steps of each client that are part of a stretch
    samples = np.pad(cohort.plan.sizes.numpy().cumsum(1), ((0, 0), (1, 0)))  # seen after 0, 1, ... steps

    def meet(rows: list[int], step: int) -> None:
        stretches.append(Stretch(rows, (samples[rows, step] - samples[rows, trained[rows]]).tolist()))
        trained[rows] = step

    advance = fed.ranks.begin(fed.executor, cohort)
    for step, rows in schedule.averages:
        advance(step)
        members = torch.tensor(rows, device=cohort.W.device)
        share = r.weights[members, 0] / r.weights[members, 0].sum()
        cohort.W[members] = weighted_sum(share, cohort.W[members])
        cohort.buffers[members] = weighted_sum(share, cohort.buffers[members])
        meet(rows, step)
    advance(cohort.plan.longest)
    if active := [row for row in range(len(r.ids)) if row not in schedule.idle]:
        meet(active, cohort.plan.longest)
    return stretches
