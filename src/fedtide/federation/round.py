"""One communication round: start rows, local training with its exchanges, the server's step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedtide.algorithms.base import Round, Vectors
from fedtide.costs.wireless import Segment
from fedtide.engine import contract
from fedtide.engine.local import Cohort, momentum_steps
from fedtide.engine.plan import BatchPlan
from fedtide.federation.assembly.chosen import LAST_SERVED, LATEST
from fedtide.federation.downlink import broadcast, moved
from fedtide.federation.parts import Parts
from fedtide.federation.plan import RoundPlan
from fedtide.federation.ranks import Share, share_of
from fedtide.federation.services import RoundServices
from fedtide.federation.state import RunState
from fedtide.federation.training import Training, phase_batches, sit_out, train
from fedtide.federation.uplink import Combining, Trip, pass_links

_NUMBERS = 1 << 20  # numbers in a temporary of a few rows


@dataclass(frozen=True)
class RoundResult:
    """What a round produced.

    Attributes:
        w, b: the new model. members: the local models. participants: their mean, or the new model where that is not evaluated.
        train_loss: mean training loss. losses: of each participant, float64 [C], NaN where it took no step.
        drift: mean distance of the local models from the broadcast model.
        segments: local work before each exchange of models, in order.
        trained: participants that took local steps.
        clients, server: columns to record of the participants, empty if there are none, and numbers of the server.
    """

    w: Tensor
    b: Tensor
    participants: tuple[Tensor, Tensor]
    members: tuple[Tensor, Tensor]
    train_loss: float
    losses: Tensor
    drift: float
    segments: list[Segment]
    trained: int
    clients: dict[str, Sequence[float]]
    server: dict[str, float | None]


def train_round(parts: Parts, state: RunState, plan: RoundPlan) -> RoundResult:
    """Train one round on ``state``: its memories, counts and totals are updated, ``w`` and ``b`` are returned.

    Sums over clients run in ascending id order, so nothing depends on which worker finished first.
    """
    algorithm = parts.algorithm
    parts.synthetic.load(state.extra)
    samples = algorithm.training_samples(plan.ids, plan.shard_ids, plan.shards, state.extra)
    shards = contract.positions(algorithm, "training_samples", samples, len(plan.ids), parts.data.size("train"))
    attackers, attacking = parts.attackers, _attacking(parts, plan)
    plan = replace(plan, shards=shards if attackers is None else attackers.poisoned(shards, attacking))
    batches = phase_batches(plan, plan.local, parts.data.classes, state.w.device)
    ids = torch.tensor(plan.ids, dtype=torch.int64)
    places = ids.to(state.counts.device)
    state.counts.index_add_(0, places, torch.ones_like(places))
    memory = {  # [C, d]
        name: rows[ids.to(rows.device)].to(state.w.device) for name, rows in state.memory.items() if name != LAST_SERVED
    }
    r, services = _make_round(parts, state, plan, batches, memory)
    schedule = parts.exchange.schedule(r)
    whole = bool(memory or schedule.averages) or plan.starts is not None or not parts.sums_only
    share = share_of(parts.hardware.group, len(ids), whole)
    r.sums = share.total
    batches = sit_out(r, schedule, batches)
    trained = train(Training(parts, state, plan, services.counts, memory, schedule, share), r, batches)
    cohort = trained.cohort
    services.buffers = r.buffers = cohort.buffers
    r.trained = cohort.W
    drift = _drift(cohort.W, r.base, share)
    combining: Combining | None = None
    trip = Trip(plan, share, state, algorithm.shared(parts.layout))
    if attackers is not None and trained.start is not None:
        here = range(len(ids))[slice(None) if share.whole else share.rows]
        r.W = attackers.forged(r.W, trained.start, attacking, here)
    sent = pass_links(parts.links, r, trained.start, memory, trip)
    if parts.rule is not None:
        r.rule = combining = Combining(parts.rule, r, trained.start, trip)
    r.weights = contract.tensor(algorithm, "weights", algorithm.weights(r), r.n, tuple(r.n.shape))
    w = moved(state, contract.tensor(algorithm, "finish", algorithm.finish(r), state.w, tuple(state.w.shape)))
    if algorithm.keeps_buffers:
        b = state.b
    else:
        b = r.weighted_mean(cohort.buffers) if combining is None else combining.statistics(cohort.buffers)
    if LATEST in memory:
        memory[LATEST] = cohort.W
    if plan.local.keeps_momentum:
        memory.update(cohort.moments)
    _scatter(state, ids, memory, _keeps(plan))
    values = sent | contract.record(algorithm, algorithm.record(r), len(plan.ids))
    if trained.gradients is not None:
        values["gradients"] = trained.gradients
    if combining is not None and combining.kept is not None:
        values["kept"] = combining.kept
    if attackers is not None:
        values["attacker"] = _column(attacking, r.n)
    clients, server = _recorded(plan.ids, values)
    mean, losses = _losses(cohort, plan)
    return RoundResult(
        w=w,
        b=b,
        participants=(r.mean(r.W), b) if parts.evaluates("participants") else (w, b),
        members=(cohort.W, cohort.buffers),
        train_loss=mean,
        losses=losses,
        drift=drift,
        segments=trained.segments,
        trained=sum(count > 0 for count in cohort.plan.steps),
        clients=clients,
        server=server,
    )


def _attacking(parts: Parts, plan: RoundPlan) -> list[int]:
    """Rows of the participants that attack; in gradient rounds as in the round that follows them."""
    t = plan.t if plan.purpose != "gradient" else int(parts.timeline.session_starts[plan.session])
    return [] if parts.attackers is None else parts.attackers.rows(plan.ids, t)


def _column(rows: list[int], like: Tensor) -> Tensor:
    """1.0 in some rows of a column [C, 1]."""
    found = torch.zeros_like(like)
    found[rows] = 1.0
    return found


def _keeps(plan: RoundPlan) -> Tensor:
    """Whether each participant's memories are kept, bool [C]."""
    return torch.ones(len(plan.ids), dtype=torch.bool) if plan.starts is None else torch.tensor(plan.starts.keeps)


def _scatter(state: RunState, ids: Tensor, memory: dict[str, Tensor], keeps: Tensor) -> None:
    """Write the participants' memories back, where they are kept."""
    everybody = bool(keeps.all())
    ids = ids if everybody else ids[keeps]
    for name, rows in memory.items():
        kept = state.memory[name]
        kept[ids.to(kept.device)] = (rows if everybody else rows[keeps.to(rows.device)]).to(kept.device)
    state.seen[ids] = True
    state.written[ids] = state.round + 1


def _make_round(
    parts: Parts, state: RunState, plan: RoundPlan, batches: BatchPlan, memory: dict[str, Tensor]
) -> tuple[Round, RoundServices]:
    """The round as the algorithm sees it, and its services."""
    algorithm, local, ids = parts.algorithm, plan.local, torch.tensor(plan.ids, dtype=torch.int64)

    def column(values: Tensor) -> Tensor:
        return values.unsqueeze(-1).to(state.w)

    n = torch.tensor([len(shard) for shard in plan.shards], dtype=torch.float64)
    steps = torch.tensor(batches.steps, dtype=torch.float64)
    counts = parts.data.label_counts(plan.shards)
    weights = parts.weighting.weights(n, counts)
    services = RoundServices(parts, state, plan, counts)
    sent = broadcast(state)
    rows = sent.expand(len(plan.ids), -1) if plan.starts is None else plan.starts.w
    behind = [0] * len(plan.ids) if plan.starts is None else plan.starts.staleness
    rate = plan.rate
    r = Round(
        t=plan.t,
        rounds=parts.timeline.rounds,
        session=plan.session,
        session_round=plan.session_round,
        lr=plan.lr,
        rate=rate if isinstance(rate, float) else column(torch.tensor(rate, dtype=torch.float64)),
        lr0=local.lr,
        w=sent,
        W=rows,
        trained=rows,
        b=state.b,
        buffers=state.b.expand(len(plan.ids), -1) if plan.starts is None else plan.starts.b,
        base=rows,
        staleness=column(torch.tensor(behind)),
        keeps=column(_keeps(plan)),
        server=Vectors(state.server),
        client=Vectors({name: memory[name] for name in algorithm.client}),
        extra=state.extra,
        ids=plan.ids,
        shard_ids=plan.shard_ids,
        n=column(n),
        omega=column(n / plan.mean_size),
        steps=column(steps),
        effective_steps=column(momentum_steps(steps, local.momentum, local.nesterov)),
        mean_steps=plan.mean_steps,
        weights=column(contract.tensor(parts.weighting, "weights", weights, None, (len(n),))),
        population=plan.population,
        clients=parts.timeline.num_clients,
        participation_fraction=plan.participation_fraction,
        counts=column(state.counts[ids]),
        seen=column(state.seen[ids]),
        label_counts=counts.to(state.w),
        layout=parts.layout,
        local=local,
        services=services,
        randomness=parts.randomness,
    )
    return r, services


def _recorded(
    ids: list[int], values: dict[str, Tensor | float]
) -> tuple[dict[str, Sequence[float]], dict[str, float | None]]:
    """Columns about the participants (with their ids, if any), and numbers about the server, ``None`` for NaN."""
    columns = {name: value[:, 0].tolist() for name, value in values.items() if isinstance(value, Tensor)}
    numbers = {name: None if math.isnan(n) else n for name, n in values.items() if not isinstance(n, Tensor)}
    return ({"client": ids, **columns} if columns else {}), numbers


def _losses(cohort: Cohort, plan: RoundPlan) -> tuple[float, Tensor]:
    """Mean training loss, and that of each participant, float64 [C], NaN without a step."""
    steps = torch.tensor(cohort.plan.steps, dtype=torch.float64)
    n = torch.tensor([len(shard) for shard in plan.shards], dtype=torch.float64)
    trained = n * (steps > 0)
    losses = cohort.losses.to(torch.float64).cpu() / steps.clamp(min=1)
    mean = float((losses * trained).sum() / trained.sum().clamp(min=1))
    return mean, torch.where(steps > 0, losses, torch.nan)


def _drift(W: Tensor, base: Tensor, share: Share) -> float:
    """Mean distance of the rows of ``W`` and ``base`` [C, d]; a few at a time, so that no second cohort is held."""
    few = zip(*(torch.split(rows, max(1, _NUMBERS // W.shape[1])) for rows in (W, base)), strict=True)
    distances = torch.cat([torch.linalg.vector_norm(rows - start, dim=-1) for rows, start in few])
    if not share.whole:
        share.combine(distances)
    return float(distances.mean())
