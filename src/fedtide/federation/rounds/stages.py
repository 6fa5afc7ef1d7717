"""What a round does before and after local training: who trains on what, the server's step, memories, records."""

from __future__ import annotations

import torch
from torch import Tensor

from fedtide.federation.rounds.plan import RoundPlan
from fedtide.federation.types import Parts, RoundContext, RunState
from fedtide.methods.algorithms.base import shares_buffers
from fedtide.training.engine import contract


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
    keeps, ids, state = r.plan.keeps, torch.tensor(r.plan.ids, dtype=torch.int64), r.state
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
