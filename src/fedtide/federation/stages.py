"""The stages of a round between its features: what reaches the clients, local training, the server's step."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from fedtide.algorithms.base import Job, Means, Models, Round, Session, Vectors, server_vectors, shares_buffers
from fedtide.engine import contract
from fedtide.engine.plan import BatchPlan
from fedtide.federation.plan import RoundPlan
from fedtide.federation.ranks import Share, share_of
from fedtide.federation.services import RoundServices
from fedtide.federation.training import Training, phase_batches, sit_out, train
from fedtide.federation.types import Parts, RoundContext, RunState

_NUMBERS = 1 << 20  # numbers in a temporary of a few rows


def prepare(parts: Parts, state: RunState, plan: RoundPlan) -> RoundContext:
    """The round before anything has reached the clients."""
    rehearsal = plan.purpose == "gradient"
    samples = parts.algorithm.training_samples(plan.ids, plan.shard_ids, plan.shards, state.extra)
    return RoundContext(
        parts,
        state,
        plan,
        features=tuple(feature for feature in parts.features if feature.rehearses or not rehearsal),
        shards=contract.positions(
            parts.algorithm, "training_samples", samples, len(plan.ids), parts.data.size("train")
        ),
        w=state.w,
        sent=parts.channel.model(state),
    )


def train_clients(r: RoundContext) -> None:
    """Local training with the exchanges inside the round."""
    parts, state, plan = r.parts, r.state, replace(r.plan, shards=r.shards)
    batches = phase_batches(plan, plan.local, parts.data.classes, state.w.device)
    ids = torch.tensor(plan.ids, dtype=torch.int64)
    places = ids.to(state.counts.device)
    state.counts.index_add_(0, places, torch.ones_like(places))
    resting = parts.rows_that(rest=True)
    r.memory = {  # [C, d]
        name: rows[ids.to(rows.device)].to(state.w.device) for name, rows in state.memory.items() if name not in resting
    }
    r.round, services = _algorithms_view(r, plan, batches)
    schedule = parts.exchange.schedule(r.round)
    whole = bool(r.memory or schedule.averages) or plan.starts is not None or not parts.sums_only
    r.share = share_of(parts.hardware.group, len(ids), whole)
    r.round.means.sums = r.share.total
    batches = sit_out(r.round, schedule, batches)
    training = Training(parts, state, plan, services.counts, r.memory, schedule, r.share)
    done = train(training, r.round, batches)
    r.cohort, r.start, r.segments, r.gradients = done.cohort, done.start, done.segments, done.gradients
    services.buffers = r.cohort.buffers
    r.round.trained = Models(r.cohort.W, r.cohort.buffers)
    if not plan.starts:  # the algorithm may have decided at the start of the round what it sends
        r.bytes_down = parts.channel.receive(parts, state, plan.ids, plan.t)
    r.drift = _drift(r.cohort.W, r.round.base, r.share)
    r.train_loss, r.losses = _losses(r)


def aggregate(r: RoundContext) -> tuple[Tensor, Tensor]:
    """The algorithm's step at the server: parameters [d] and floating buffers [q] of the new model."""
    algorithm, view, w = r.parts.algorithm, r.round, r.state.w
    view.weights = contract.tensor(algorithm, "weights", algorithm.weights(view), view.n, tuple(view.n.shape))
    new = contract.tensor(algorithm, "finish", algorithm.finish(view), w, tuple(w.shape))
    return new, view.statistics(view.trained.b) if shares_buffers(algorithm, r.parts.layout) else r.state.b


def keep(r: RoundContext) -> None:
    """Write the participants' memories back, where they are kept."""
    if r.plan.local.keeps_momentum:
        r.memory.update(r.cohort.moments)
    keeps, ids, state = _keeps(r.plan), torch.tensor(r.plan.ids, dtype=torch.int64), r.state
    everybody = bool(keeps.all())
    ids = ids if everybody else ids[keeps]
    for name, rows in r.memory.items():
        kept = state.memory[name]
        kept[ids.to(kept.device)] = (rows if everybody else rows[keeps.to(rows.device)]).to(kept.device)
    state.seen[ids] = True
    state.written[ids] = state.round + 1


def record(r: RoundContext) -> dict[str, Tensor | float]:
    """What algorithm and training have to record."""
    algorithm = r.parts.algorithm
    found = contract.record(algorithm, algorithm.record(r.round), len(r.plan.ids))
    return found if r.gradients is None else {**found, "gradients": r.gradients}


def _algorithms_view(context: RoundContext, plan: RoundPlan, batches: BatchPlan) -> tuple[Round, RoundServices]:
    """The round as the algorithm sees it, and its services."""
    parts, state, sent = context.parts, context.state, context.sent
    algorithm, ids = parts.algorithm, torch.tensor(plan.ids, dtype=torch.int64)

    def column(values: Tensor) -> Tensor:
        return values.unsqueeze(-1).to(state.w)

    n = torch.tensor([len(shard) for shard in plan.shards], dtype=torch.float64)
    counts = parts.data.label_counts(plan.shards)
    weights = parts.weighting.weights(n, counts)
    services = RoundServices(parts, state, plan, counts)
    rows = sent.expand(len(plan.ids), -1) if plan.starts is None else plan.starts.w
    behind = [0] * len(plan.ids) if plan.starts is None else plan.starts.staleness
    rate = plan.rate
    b = state.b.expand(len(plan.ids), -1) if plan.starts is None else plan.starts.b
    r = Round(
        t=plan.t,
        session=Session(plan.session, plan.session_round),
        lr=plan.lr,
        w=sent,
        W=rows,
        base=rows,
        trained=Models(rows, b),
        job=Job(
            rate=rate if isinstance(rate, float) else column(torch.tensor(rate, dtype=torch.float64)),
            staleness=column(torch.tensor(behind)),
            keeps=column(_keeps(plan)),
        ),
        server=Vectors(state.server),
        client=Vectors({name: context.memory[name] for name in algorithm.client}),
        extra=state.extra,
        ids=plan.ids,
        shard_ids=plan.shard_ids,
        n=column(n),
        mean_size=plan.mean_size,
        steps=column(torch.tensor(batches.steps, dtype=torch.float64)),
        weights=column(contract.tensor(parts.weighting, "weights", weights, None, (len(n),))),
        population=plan.population,
        seen=column(state.seen[ids]),
        label_counts=counts.to(state.w),
        local=plan.local,
        services=services,
        problem=algorithm.problem,
        means=Means(declared=server_vectors(algorithm)),
    )
    return r, services


def _keeps(plan: RoundPlan) -> Tensor:
    """Whether each participant's memories are kept, bool [C]."""
    return torch.ones(len(plan.ids), dtype=torch.bool) if plan.starts is None else torch.tensor(plan.starts.keeps)


def _losses(r: RoundContext) -> tuple[float, Tensor]:
    """Mean training loss, and that of each participant, float64 [C], NaN without a step."""
    steps = torch.tensor(r.cohort.plan.steps, dtype=torch.float64)
    n = torch.tensor([len(shard) for shard in r.shards], dtype=torch.float64)
    trained = n * (steps > 0)
    losses = r.cohort.losses.to(torch.float64).cpu() / steps.clamp(min=1)
    mean = float((losses * trained).sum() / trained.sum().clamp(min=1))
    return mean, torch.where(steps > 0, losses, torch.nan)


def _drift(W: Tensor, base: Tensor, share: Share) -> float:
    """Mean distance of the rows of ``W`` and ``base`` [C, d]; a few at a time, so that no second cohort is held."""
    few = zip(*(torch.split(rows, max(1, _NUMBERS // W.shape[1])) for rows in (W, base)), strict=True)
    distances = torch.cat([torch.linalg.vector_norm(rows - start, dim=-1) for rows, start in few])
    if not share.whole:
        share.combine(distances)
    return float(distances.mean())
