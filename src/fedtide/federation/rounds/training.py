"""Local training of a round: the phases that an algorithm asks for, each with its exchanges."""

from collections.abc import Generator, Mapping
from dataclasses import replace
from functools import cache

import numpy as np
import torch
from torch import Tensor

from fedtide.core.array_types import Ints
from fedtide.core.discovery.faults import broken_contract
from fedtide.federation.assembly.hardware import share_of
from fedtide.federation.rounds.plan import draws
from fedtide.federation.rounds.services import RoundServices
from fedtide.federation.types import RoundContext
from fedtide.methods.algorithms.base import (
    Algorithm,
    Job,
    Means,
    Models,
    Phase,
    Round,
    Session,
    Vectors,
    overrides,
    server_vectors,
)
from fedtide.methods.communication.base import Schedule
from fedtide.methods.costs.wireless import Segment
from fedtide.settings.groups.local import LocalSettings
from fedtide.training.engine import contract
from fedtide.training.engine.flat import weighted_sum
from fedtide.training.engine.local import Cohort, EarlyStop, Gradient, GradientAt, NoStep
from fedtide.training.engine.optimizers import optimizer
from fedtide.training.engine.passes.evaluation import own_loss
from fedtide.training.engine.plan import EPOCHS, BatchPlan, plan_batches, step_count

_NUMBERS = 1 << 20  # numbers in a temporary of a few rows


def train_clients(r: RoundContext) -> None:
    """Local training with the exchanges inside the round."""
    parts, state, plan = r.parts, r.state, r.plan
    batches = _phase_batches(r, plan.local)
    ids = torch.tensor(plan.ids, dtype=torch.int64)
    places = ids.to(state.counts.device)
    state.counts.index_add_(0, places, torch.ones_like(places))
    resting = parts.rows_that(rest=True)
    r.memory = {  # [C, d]
        name: rows[ids.to(rows.device)].to(state.w.device) for name, rows in state.memory.items() if name not in resting
    }
    r.round, services = _algorithms_view(r, batches)
    schedule = parts.communication.schedule(r.round)
    whole = bool(r.memory or schedule.averages) or plan.starts is not None or not parts.sums_only
    r.share = share_of(parts.hardware.group, len(ids), whole)
    r.round.means.sums = r.share.total
    batches = _sit_out(r.round, schedule, batches)
    _train(r, schedule, services.counts, batches)
    if r.cohort.stop is not None:
        services.charge_losses(r.cohort.stop.asked())
    r.passes = services.passes
    services.buffers = r.cohort.buffers
    r.round.trained = Models(r.cohort.W, r.cohort.buffers)
    if not plan.starts:  # the algorithm may have decided at the start of the round what it sends
        r.bytes_down = parts.channel.receive(parts, state, plan.ids, plan.t)
    numbers = [r.cohort.losses, _drift(r)]
    *losses, r.drift = torch.cat(numbers).tolist()  # a GPU is waited for once
    r.train_loss, r.losses = _losses(r, torch.tensor(losses, dtype=torch.float64))


def _phase_batches(r: RoundContext, local: LocalSettings, number: int = 0) -> BatchPlan:
    """The batches of a phase, drawn ahead or now."""
    wanted, drawn, device = draws(r.plan, local, number), r.plan.drawn, r.state.w.device
    if drawn is not None and drawn.fits(wanted):
        return drawn.batches.result().to(device)
    return plan_batches(*wanted, device, r.parts.data.classes)


def _train(r: RoundContext, schedule: Schedule, counts: Tensor, batches: BatchPlan) -> None:
    """Run all phases; the models and steps of the round become those of the main one, or the last.

    ``schedule``: exchanges inside the round. ``counts``: samples per class [C, L] as the objective sees them.
    """
    algorithm, view = r.parts.algorithm, r.round
    main: list[int] = []
    cohorts: list[Cohort] = []
    starts: list[Tensor | None] = []
    segments: list[list[Segment]] = []
    phases = contract.instance(algorithm, "phases", algorithm.phases(view), Generator)
    phase = next(phases, None)
    while phase is not None:
        phase = contract.instance(algorithm, "phases", phase, Phase)
        cohort, start = _cohort(r, phase, counts, batches, len(cohorts))
        if phase.main:
            main.append(len(cohorts))
        segments.append(_advance(r, schedule, cohort, exchanges=not cohorts))
        cohorts.append(cohort)
        starts.append(start)
        try:
            phase = phases.send(cohort.W)
        except StopIteration:
            phase = None
    if not cohorts or len(main) > 1:
        raise broken_contract(algorithm, "phases", "one Phase or more, at most one of them with main=True")
    kept = main[0] if main else -1
    r.cohort, r.start = cohorts[kept], starts[kept]
    if view.W is not cohorts[0].W and view.W is not r.cohort.W:  # whoever sets it means another phase than this one
        raise broken_contract(
            algorithm, "phases", "no r.W of its own, but main=True in the Phase that the round is about"
        )
    view.W = r.cohort.W
    _count_steps(view, r.cohort.plan)
    r.segments, r.gradients = _joined(segments), _mean_gradients(algorithm, cohorts)


def _gradients(algorithm: Algorithm, cohort: Cohort) -> Ints:
    """Gradients on its batch that each planned local step of a phase takes, int64 [S]."""
    steps = range(cohort.plan.planned.max(initial=0))
    taken = [1 if cohort.direction is None else algorithm.gradients_in(step) for step in steps]
    return np.array(taken, dtype=np.int64)


def _mean_gradients(algorithm: Algorithm, phases: list[Cohort]) -> float | None:
    """Gradients on batches that a participant took, on average; None where it took one in every planned step of one phase."""
    if len(phases) == 1 and phases[0].stop is None and (_gradients(algorithm, phases[0]) == 1).all():
        return None
    after = [np.append(0, _gradients(algorithm, cohort).cumsum()) for cohort in phases]  # 0, 1, ... steps
    taken = [int(sums[cohort.plan.steps].sum()) for sums, cohort in zip(after, phases, strict=True)]
    return sum(taken) / len(phases[0].plan.steps)


def _joined(phases: list[list[Segment]]) -> list[Segment]:
    """The segments of the first phase; what the others have processed comes before its last exchange."""
    segments, *others = phases
    for (only,) in others if segments else ():
        segments = with_more(segments, dict(zip(only.rows, only.samples, strict=True)))
    return segments


def with_more(segments: list[Segment], samples: Mapping[int, float]) -> list[Segment]:
    """The segments, where devices have processed so many more ``samples`` before their last exchange."""
    *before, last = segments
    more = [count + samples[row] for row, count in zip(last.rows, last.samples, strict=True)]
    return [*before, replace(last, samples=more)]


def _count_steps(view: Round, plan: BatchPlan) -> None:
    """Set what the algorithm knows of local steps to those of a plan."""
    view.steps = torch.tensor(plan.steps, dtype=torch.float64).unsqueeze(-1).to(view.w)


def _cohort(
    r: RoundContext, phase: Phase, counts: Tensor, batches: BatchPlan, number: int
) -> tuple[Cohort, Tensor | None]:
    """The participants, ready for the phase of some number, and the models [C, d] that it starts from, if a feature asks."""
    parts, state, view, plan = r.parts, r.state, r.round, r.plan
    algorithm, clients, size = parts.algorithm, len(plan.ids), len(view.w)
    hook = "phases" if overrides(algorithm, "phases") else "start"
    start = contract.tensor(algorithm, hook, phase.start, view.w, (size,), (clients, size)).expand(clients, -1)
    W, trains = start.clone(), phase.trains
    buffers = state.b if plan.starts is None else plan.starts.b
    if phase.buffers is not None:
        form = len(state.b)
        buffers = contract.tensor(algorithm, "phases", phase.buffers, state.b, (form,), (clients, form))
    if trains is not None:
        trains = contract.mask(algorithm, trains, size).to(W.device)
    local = plan.local if phase.amount is None else plan.local.with_work(phase.amount)
    if number or phase.amount is not None:
        batches = _phase_batches(r, local, number)
    used = optimizer(plan.local)
    keeps = plan.local.keeps_momentum and not number
    cohort = Cohort(
        W=W,
        buffers=buffers.expand(clients, -1).clone(),
        moments={name: r.memory[name] for name in used.widths(size)} if keeps else used.at_rest(W),
        b=state.b,
        plan=batches,
        label_counts=counts,
        lr=view.job.rate if phase.lr is None else phase.lr,
        added=contract.local(algorithm, phase.local, clients, size),
        losses=torch.zeros(clients, dtype=state.w.dtype, device=state.w.device),
        trains=trains,
    )
    kept = start if parts.updates else None
    if number:
        return cohort, kept
    view.W = W
    cohort.stop = _early_stop(r, local, batches.steps)
    cohort.terms = [
        *contract.terms(algorithm, algorithm.terms(view)),
        *contract.terms(parts.initializer, parts.initializer.terms(state.initializer)),
    ]
    if overrides(algorithm, "direction"):
        own = cache(lambda start, stop: view.rows(slice(start, stop)))  # views, which stay up to date

        def direction(grad: Gradient, W: Tensor, rows: slice) -> Tensor | GradientAt | NoStep:
            before = W._version
            found = algorithm.direction(grad, W, own(rows.start, rows.stop))
            if W._version != before:
                raise broken_contract(algorithm, "direction", "a tensor of its own, and leave W as it is")
            return contract.direction(algorithm, found, W)

        cohort.direction = direction
        cohort.memories = [rows for _, rows in view.client]
    return cohort, kept


def _early_stop(r: RoundContext, local: LocalSettings, steps: list[int]) -> EarlyStop | None:
    """Where the algorithm lets participants stop that are to take ``steps``; None if nowhere, or work is not in epochs."""
    parts, shards = r.parts, r.plan.shards
    rule = parts.algorithm.early_stop
    if rule is None or local.unit not in EPOCHS:
        return None
    first = [local.with_work(epochs) for epochs in range(1, local.amount + 1)]

    def loss(row: int, w: Tensor, b: Tensor) -> float:
        return own_loss(parts.workers, w, b, shards[row], parts.settings.evaluation.batch_size)

    ends = [
        [step_count(len(shard), r.plan.mean_size, part) for part in first] if count else []
        for shard, count in zip(shards, steps, strict=True)
    ]
    return EarlyStop(rule, ends, loss)


def _sit_out(view: Round, schedule: Schedule, batches: BatchPlan) -> BatchPlan:
    """Idle clients take no step, and are left out of the average unless ``idle_count`` is set."""
    if not schedule.idle:
        return batches
    batches = batches.without(schedule.idle)
    _count_steps(view, batches)
    trains = torch.ones_like(view.steps)
    trains[schedule.idle] = 0
    if not schedule.idle_count and len(schedule.idle) < len(view.ids):
        view.weights = view.weights * trains / (view.weights * trains).sum()
    return batches


def _processed(algorithm: Algorithm, cohort: Cohort) -> Ints:
    """Samples in all planned steps before each one, client by client, in all gradients of a step, int64 [T + 1]."""
    plan = cohort.plan
    step = np.arange(plan.first[-1]) - np.repeat(plan.first[:-1], plan.planned)
    return np.append(0, (np.diff(plan.bounds) * _gradients(algorithm, cohort)[step]).cumsum())


def _advance(r: RoundContext, schedule: Schedule, cohort: Cohort, exchanges: bool) -> list[Segment]:
    """Local steps, with ``exchanges`` in segments that end where clients average, the last at the round's end; else in one."""
    segments, clients, weights = [], range(len(r.plan.ids)), r.round.weights
    trained = np.zeros(len(clients), dtype=np.int64)  # steps of each client that are part of a segment
    before = _processed(r.parts.algorithm, cohort)

    def samples(rows: list[int], step: int | Ints) -> Ints:
        """What comes before a step in the plan; no more than what the client has done."""
        taken = np.minimum(step, np.array(cohort.plan.steps)[rows])
        found: Ints = before[cohort.plan.first[rows] + taken]
        return found

    def close(rows: list[int], step: int) -> None:
        segments.append(Segment(rows, (samples(rows, step) - samples(rows, trained[rows])).tolist()))
        trained[rows] = step

    advance = r.share.begin(r.parts.executor, cohort)
    for step, rows in schedule.averages if exchanges else ():
        advance(step)
        members = torch.tensor(rows, device=cohort.W.device)
        p = weights[members, 0] / weights[members, 0].sum()
        cohort.W[members] = weighted_sum(p, cohort.W[members])
        cohort.buffers[members] = weighted_sum(p, cohort.buffers[members])
        close(rows, step)
    advance(cohort.plan.longest)
    if cohort.stop is not None:
        taken = torch.tensor(cohort.stop.steps, device=cohort.W.device)
        r.share.combine(taken)
        cohort.stop.steps = taken.tolist()
        cohort.plan = cohort.plan.until(cohort.stop.steps)
    if active := [row for row in clients if row not in schedule.idle]:
        close(active, cohort.plan.longest)
    return segments


def _algorithms_view(r: RoundContext, batches: BatchPlan) -> tuple[Round, RoundServices]:
    """The round as the algorithm sees it, and its services."""
    parts, state, plan = r.parts, r.state, r.plan
    algorithm, ids, clients = parts.algorithm, torch.tensor(plan.ids, dtype=torch.int64), len(plan.ids)

    def column(values: Tensor) -> Tensor:
        return values.unsqueeze(-1).to(state.w)

    n = torch.tensor([len(shard) for shard in plan.shards], dtype=torch.float64)
    counts = parts.label_counts(plan.shard_ids, plan.shards)
    weights = parts.weighting.weights(n, counts)
    services = RoundServices(parts, state, plan, counts)
    rows, b, staleness = r.sent.expand(clients, -1), state.b.expand(clients, -1), [0] * clients
    if plan.starts is not None:
        rows, b, staleness = plan.starts.w, plan.starts.b, plan.starts.staleness
    rate = plan.rate
    view = Round(
        t=plan.t,
        session=Session(plan.session, plan.session_round),
        lr=plan.lr,
        w=r.sent,
        W=rows,
        base=rows,
        trained=Models(rows, b),
        job=Job(
            rate=rate if isinstance(rate, float) else column(torch.tensor(rate, dtype=torch.float64)),
            staleness=column(torch.tensor(staleness)),
            keeps=column(plan.keeps),
        ),
        server=Vectors(state.server),
        client=Vectors({name: r.memory[name] for name in algorithm.client}),
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
    return view, services


def _losses(r: RoundContext, sums: Tensor) -> tuple[float, Tensor]:
    """Mean training loss, and that of each participant, float64 [C], NaN without a step, from ``sums`` [C] over its steps.

    The mean and the drift are over all, or with an aggregation rule over those that are finite, if there are any.
    """
    steps = torch.tensor(r.cohort.plan.steps, dtype=torch.float64)
    n = torch.tensor([len(shard) for shard in r.plan.shards], dtype=torch.float64)
    trained = n * (steps > 0)
    losses = sums / steps.clamp(min=1)
    finite = losses.isfinite() & (trained > 0)
    here = finite if r.parts.robust and finite.any() else slice(None)
    mean = float((losses * trained)[here].sum() / trained[here].sum().clamp(min=1))
    return mean, torch.where(steps > 0, losses, torch.nan)


def _drift(r: RoundContext) -> Tensor:
    """Mean distance [1] of the local models from those sent; a few at a time, so that no second cohort is held."""
    size = max(1, _NUMBERS // r.cohort.W.shape[1])
    few = zip(*(torch.split(rows, size) for rows in (r.cohort.W, r.round.base)), strict=True)
    distances = torch.cat([torch.linalg.vector_norm(rows - start, dim=-1) for rows, start in few])
    if not r.share.whole:
        r.share.combine(distances)
    if r.parts.robust and bool((finite := distances.isfinite()).any()):
        distances = distances[finite]
    return distances.mean().view(1)
