"""Local training of a round: the phases that an algorithm asks for, each with its exchanges."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import torch
from torch import Tensor

from fedtide.algorithms.base import Phase, Round, overrides
from fedtide.core.array_types import Ints
from fedtide.core.faults import broken_contract
from fedtide.costs.wireless import Segment
from fedtide.engine import contract
from fedtide.engine.flat import weighted_sum
from fedtide.engine.local import Cohort, Gradient, GradientAt, NoStep
from fedtide.engine.optimisers import Moments, optimiser
from fedtide.engine.passes.evaluation import own_loss
from fedtide.engine.plan import EPOCHS, BatchPlan, Classes, plan_batches, step_count
from fedtide.engine.stop import EarlyStop
from fedtide.exchange.base import Schedule
from fedtide.federation.plan import RoundPlan
from fedtide.federation.ranks import Share
from fedtide.federation.types import Parts, RunState
from fedtide.settings.run import LocalSettings


@dataclass(frozen=True)
class Training:
    """Everything that the phases of a round have in common.

    ``counts``: samples per class [C, L] as the objective sees them. ``memory``: the participants' rows by name. ``schedule``:
    exchanges inside the round.
    """

    parts: Parts
    state: RunState
    plan: RoundPlan
    counts: Tensor
    memory: dict[str, Tensor]
    schedule: Schedule
    share: Share

    def gradients(self, cohort: Cohort) -> Ints:
        """Gradients on its batch that each planned local step of a phase takes, int64 [S]."""
        steps, algorithm = range(cohort.plan.sizes.shape[1]), self.parts.algorithm
        taken = [1 if cohort.direction is None else algorithm.gradients_in(step) for step in steps]
        return np.array(taken, dtype=np.int64)


@dataclass(frozen=True)
class Trained:
    """The phase that a round's local models are from, where it started ([C, d], None if nobody asks), and all segments.

    ``gradients``: on batches that participants took in all phases, their mean; None where they are the local steps.
    """

    cohort: Cohort
    start: Tensor | None
    segments: list[Segment]
    gradients: float | None = None


def phase_batches(
    plan: RoundPlan, local: LocalSettings, classes: Classes, device: torch.device, number: int = 0
) -> BatchPlan:
    """The batches of a phase; the draws of the first one have the keys of the round alone."""
    drawn = plan.ids if plan.starts is None else plan.starts.numbers
    keys = (*plan.keys, number) if number else plan.keys
    where = plan.seed, plan.purpose, keys, device, classes
    return plan_batches(plan.shards, drawn, local, plan.mean_size, *where)


def train(t: Training, r: Round, batches: BatchPlan) -> Trained:
    """Run all phases; ``r.W`` and the steps of ``r`` become those of the main one, which is the last if none is marked."""
    algorithm, done, main = t.parts.algorithm, list[Trained](), list[int]()
    phases = contract.instance(algorithm, "phases", algorithm.phases(r), Generator)
    phase = next(phases, None)
    while phase is not None:
        cohort, start = _cohort(t, r, contract.instance(algorithm, "phases", phase, Phase), batches, len(done))
        main += [len(done)] * phase.main
        done.append(Trained(cohort, start, _advance(t, r, cohort, exchanges=not done)))
        try:
            phase = phases.send(cohort.W)
        except StopIteration:
            phase = None
    if not done or len(main) > 1:
        raise broken_contract(algorithm, "phases", "one Phase or more, at most one of them with main=True")
    kept = done[main[0] if main else -1]
    if r.W is not done[0].cohort.W and r.W is not kept.cohort.W:  # whoever sets it means another phase than this one
        raise broken_contract(
            algorithm, "phases", "no r.W of its own, but main=True in the Phase that the round is about"
        )
    r.W = kept.cohort.W
    count_steps(r, kept.cohort.plan)
    segments = _joined([trained.segments for trained in done])
    return replace(kept, segments=segments, gradients=_gradients(t, [trained.cohort for trained in done]))


def _gradients(t: Training, phases: list[Cohort]) -> float | None:
    """Gradients on batches that a participant took, on average; None where it took one in every planned step of one phase."""
    if len(phases) == 1 and phases[0].stop is None and (t.gradients(phases[0]) == 1).all():
        return None
    after = [np.append(0, t.gradients(cohort).cumsum()) for cohort in phases]  # 0, 1, ... steps
    taken = [int(sums[cohort.plan.steps].sum()) for sums, cohort in zip(after, phases, strict=True)]
    return sum(taken) / len(phases[0].plan.steps)


def _joined(phases: list[list[Segment]]) -> list[Segment]:
    """The segments of the first phase; what the others have processed comes before its last exchange."""
    segments, *others = phases
    for (only,) in others if segments else ():
        *before, last = segments
        samples = dict(zip(only.rows, only.samples, strict=True))
        more = [count + samples[row] for row, count in zip(last.rows, last.samples, strict=True)]
        segments = [*before, replace(last, samples=more)]
    return segments


def count_steps(r: Round, plan: BatchPlan) -> None:
    """Set what the round knows of local steps to those of a plan."""
    r.steps = torch.tensor(plan.steps, dtype=torch.float64).unsqueeze(-1).to(r.w)


def _cohort(t: Training, r: Round, phase: Phase, batches: BatchPlan, number: int) -> tuple[Cohort, Tensor | None]:
    """The participants, ready for the phase of some number, and the models [C, d] that it starts from, if a feature asks."""
    algorithm, state, clients = t.parts.algorithm, t.state, len(r.ids)
    hook, shapes = "phases" if overrides(algorithm, "phases") else "start", ((len(r.w),), (clients, len(r.w)))
    start = contract.tensor(algorithm, hook, phase.start, r.w, *shapes).expand(clients, -1)
    W, trains = start.clone(), phase.trains
    buffers = state.b.expand(clients, -1) if t.plan.starts is None else t.plan.starts.b
    if phase.buffers is not None:
        form = len(state.b)
        buffers = contract.tensor(algorithm, "phases", phase.buffers, state.b, (form,), (clients, form))
    if trains is not None:
        trains = contract.mask(algorithm, trains, len(r.w)).to(W.device)
    local = t.plan.local if phase.amount is None else t.plan.local.model_copy(update={"amount": phase.amount})
    if number or phase.amount is not None:
        batches = phase_batches(t.plan, local, t.parts.data.classes, W.device, number)
    cohort = Cohort(
        W=W,
        buffers=buffers.expand(clients, -1).clone(),
        moments=optimiser(r.local).at_rest(W) if number else _moments(t.memory, W, r.local),
        b=state.b,
        plan=batches,
        label_counts=t.counts,
        lr=r.job.rate if phase.lr is None else phase.lr,
        added=contract.local(algorithm, phase.local, clients, len(r.w)),
        losses=torch.zeros(clients, dtype=state.w.dtype, device=state.w.device),
        trains=trains,
    )
    kept = start if t.parts.updates else None
    if number:
        return cohort, kept
    r.W = W
    cohort.stop = _early_stop(t, local, batches.steps)
    cohort.terms = [
        *contract.terms(algorithm, algorithm.terms(r)),
        *contract.terms(t.parts.initialiser, t.parts.initialiser.terms(state.initialiser)),
    ]
    if overrides(algorithm, "direction"):
        own = cache(lambda start, stop: r.rows(slice(start, stop)))  # views, which stay up to date

        def direction(grad: Gradient, W: Tensor, rows: slice) -> Tensor | GradientAt | NoStep:
            before = W._version
            found = algorithm.direction(grad, W, own(rows.start, rows.stop))
            if W._version != before:
                raise broken_contract(algorithm, "direction", "a tensor of its own, and leave W as it is")
            return contract.direction(algorithm, found, W)

        cohort.direction = direction
        cohort.memories = [rows for _, rows in r.client]
    return cohort, kept


def _early_stop(t: Training, local: LocalSettings, steps: list[int]) -> EarlyStop | None:
    """Where the algorithm lets participants stop that are to take ``steps``; None if nowhere, or work is not in epochs."""
    rule, parts, shards = t.parts.algorithm.early_stop, t.parts, t.plan.shards
    if rule is None or local.unit not in EPOCHS:
        return None
    first = [local.model_copy(update={"amount": epochs}) for epochs in range(1, local.amount + 1)]

    def loss(row: int, w: Tensor, b: Tensor) -> float:
        return own_loss(parts.workers, w, b, shards[row], parts.settings.evaluation.batch_size)

    ends = [
        [step_count(len(shard), t.plan.mean_size, part) for part in first] if count else []
        for shard, count in zip(shards, steps, strict=True)
    ]
    return EarlyStop(rule, ends, loss)


def _moments(memory: dict[str, Tensor], W: Tensor, local: LocalSettings) -> Moments:
    """What the local optimiser remembers at the start of training: the kept rows, or those of the first step."""
    used = optimiser(local)
    if local.keeps_momentum:
        return {name: memory[name] for name in used.widths(W.shape[1])}
    return used.at_rest(W)


def sit_out(r: Round, schedule: Schedule, batches: BatchPlan) -> BatchPlan:
    """Idle clients take no step, and are left out of the average of ``r`` unless ``idle_count`` is set."""
    if not schedule.idle:
        return batches
    batches = batches.without(schedule.idle)
    count_steps(r, batches)
    trains = torch.ones_like(r.steps)
    trains[schedule.idle] = 0
    if not schedule.idle_count and len(schedule.idle) < len(r.ids):
        r.weights = r.weights * trains / (r.weights * trains).sum()
    return batches


def _processed(t: Training, cohort: Cohort) -> Ints:
    """Samples that each row processes in its first 0, 1, ... steps, int64 [C, S + 1], in all gradients of a step."""
    samples: Ints = (cohort.plan.sizes.numpy() * t.gradients(cohort)).cumsum(1)
    return np.pad(samples, ((0, 0), (1, 0)))


def _advance(t: Training, r: Round, cohort: Cohort, exchanges: bool) -> list[Segment]:
    """Local steps, with ``exchanges`` in segments that end where clients average, the last at the round's end; else in one."""
    segments = []
    trained = np.zeros(len(r.ids), dtype=np.int64)  # steps of each client that are part of a segment
    samples = _processed(t, cohort)

    def close(rows: list[int], step: int) -> None:
        segments.append(Segment(rows, (samples[rows, step] - samples[rows, trained[rows]]).tolist()))
        trained[rows] = step

    advance = t.share.begin(t.parts.executor, cohort)
    for step, rows in t.schedule.averages if exchanges else ():
        advance(step)
        members = torch.tensor(rows, device=cohort.W.device)
        weights = r.weights[members, 0] / r.weights[members, 0].sum()
        cohort.W[members] = weighted_sum(weights, cohort.W[members])
        cohort.buffers[members] = weighted_sum(weights, cohort.buffers[members])
        close(rows, step)
    advance(cohort.plan.longest)
    if cohort.stop is not None:
        taken = torch.tensor(cohort.stop.steps, device=cohort.W.device)
        t.share.combine(taken)
        cohort.plan = cohort.plan.until(taken.tolist())
        samples = _processed(t, cohort)
    if active := [row for row in range(len(r.ids)) if row not in t.schedule.idle]:
        close(active, cohort.plan.longest)
    return segments
