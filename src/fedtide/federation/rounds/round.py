"""One communication round, to be read aloud."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from fedtide.federation.rounds.divergence import has_diverged
from fedtide.federation.rounds.plan import RoundPlan
from fedtide.federation.rounds.training import train_clients, with_more
from fedtide.federation.types import Feature, Parts, RoundContext, RunState
from fedtide.methods.algorithms.base import shares_buffers
from fedtide.training.engine import contract


def train_round(parts: Parts, state: RunState, plan: RoundPlan) -> RoundContext:
    """Train one round on ``state``, which then is the state after it, but for the number of rounds.

    Sums over clients run in ascending id order, so nothing depends on which worker finished first.
    """
    r = prepare(parts, state, plan)
    for feature in r.features:
        feature.before(r)
    train_clients(r)
    for feature in reversed(r.features):
        feature.after(r)
    w, b = aggregate(r)
    keep(r)
    values = record(r)
    if r.segments and r.passes.any():
        r.segments = with_more(r.segments, dict(enumerate(r.passes.tolist())))
    state.w, state.b = w, b  # not before: services of the algorithm read the old model
    r.failed = has_diverged(r)
    for feature in reversed(r.features):
        feature.close(r)
    for feature in reversed(r.features):
        values |= recorded(r, feature)
    columns = {name: value[:, 0].tolist() for name, value in values.items() if isinstance(value, Tensor)}
    r.clients = {"client": r.plan.ids, **columns} if columns else {}
    r.server = {name: None if math.isnan(n) else n for name, n in values.items() if not isinstance(n, Tensor)}
    r.participants = r.round.average() if parts.evaluates("participants") else state.w
    del r.start, r.memory  # scoring, which may take as much memory again, does not need them
    return r


def idle_round(parts: Parts, state: RunState, plan: RoundPlan) -> RoundContext:
    """A round whose drawn clients are all absent: nothing is sent, and models and memories stay as they are."""
    r = RoundContext(parts, state, plan, features=(), w=state.w, sent=state.w)
    r.segments, r.gradients, r.train_loss, r.drift = [], None, math.nan, math.nan
    r.participants, r.clients, r.failed = state.w, {}, False
    values = {name: n for feature in parts.features if feature.idles for name, n in feature.record(r).items()}
    r.server = {name: None if math.isnan(n) else n for name, n in values.items() if not isinstance(n, Tensor)}
    return r


@dataclass
class RoundRecord:
    """What is recorded of a round.

    Attributes:
        row: of ``history.csv``. per_class: accuracies of the reported model by split; ``held``: samples of each class
            that the participants held.
        clients: columns of ``clients.csv``, one value per participant.
        client_scores: columns of the table of client scores, one value per client that is evaluated.
        session_scores: rows of ``session_scores.csv``, after the last round of a session.
        owner_scores: rows of ``owner_scores.csv``, after the last round before a period that is evaluated.
        session: facts about the session that begins with this round; ``None`` inside a session and for the first one.
        initial: initial model [d] of the session that begins with this round, else ``None``.
        events: further entries of ``events.jsonl``, see :class:`RoundContext`.
    """

    row: dict[str, float | int | None]
    per_class: dict[str, Sequence[float | None]] = field(default_factory=dict)
    clients: dict[str, Sequence[float]] = field(default_factory=dict)
    client_scores: dict[str, Sequence[Any]] = field(default_factory=dict)
    session_scores: list[dict[str, Any]] = field(default_factory=list)
    owner_scores: list[dict[str, Any]] = field(default_factory=list)
    session: dict[str, Any] | None = None
    initial: Tensor | None = None
    events: list[dict[str, Any]] = field(default_factory=list)


def prepare(parts: Parts, state: RunState, plan: RoundPlan) -> RoundContext:
    """The round before anything has reached the clients."""
    rehearsal = plan.purpose == "gradient"
    samples = parts.algorithm.training_samples(plan.ids, plan.shard_ids, plan.shards, state.extra)
    if samples is not plan.shards:  # the default
        contract.positions(parts.algorithm, "training_samples", samples, len(plan.ids), parts.data.size("train"))
    return RoundContext(
        parts,
        state,
        replace(plan, shards=samples),
        features=tuple(feature for feature in parts.features if feature.rehearses or not rehearsal),
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


def recorded(r: RoundContext, feature: Feature) -> dict[str, Tensor | float]:
    """What a feature has to record; of one that is row-wise, each process knows the rows of its own participants."""
    found = feature.record(r)
    if not feature.rowwise:
        return found
    return {name: r.share.gathered(value) if isinstance(value, Tensor) else value for name, value in found.items()}


def record(r: RoundContext) -> dict[str, Tensor | float]:
    """What algorithm and training have to record."""
    algorithm = r.parts.algorithm
    found = contract.record(algorithm, algorithm.record(r.round), len(r.plan.ids))
    return found if r.gradients is None else {**found, "gradients": r.gradients}
