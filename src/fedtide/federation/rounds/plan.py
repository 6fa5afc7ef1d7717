"""The plan of a round: participants, their data, learning rate and keys."""

import math
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedtide.core.array_types import Ints
from fedtide.core.discovery.faults import broken_contract
from fedtide.settings.groups.local import LocalSettings
from fedtide.settings.run import RunSettings
from fedtide.training.engine import contract
from fedtide.training.engine.plan import BatchPlan, step_count
from fedtide.world.participation.base import Participation
from fedtide.world.timeline import Assignment, Timeline


@dataclass(frozen=True)
class JobStarts:
    """What the jobs of an update started from, with ``mode: async``; one row or entry per job.

    Attributes:
        numbers: of the jobs, the last keys of their batches. w: [C, d]. b: [C, q]. lr: learning rates.
        staleness: updates since then. keeps: whether the client's memories of it are kept: it is the client's last one in this
            update, and the client has not left.
    """

    numbers: list[int]
    w: Tensor
    b: Tensor
    lr: list[float]
    staleness: list[int]
    keeps: list[bool]


Draws = tuple[Sequence[Ints], Sequence[int], LocalSettings, float, int, str, tuple[int, ...]]
"""The first arguments of :func:`fedtide.training.engine.plan.plan_batches`, on which a draw depends."""


class Drawn(NamedTuple):
    """Batches that a thread draws, on the CPU, and what they are drawn from."""

    wanted: Draws
    batches: Future[BatchPlan]

    def fits(self, wanted: Draws) -> bool:
        """Whether the batches are those of ``wanted``: the very same arrays of samples, all else equal."""
        (mine, *others), (shards, *wanted_others) = self.wanted, wanted
        same = len(mine) == len(shards) and all(own is shard for own, shard in zip(mine, shards, strict=True))
        return same and others == wanted_others


@dataclass(frozen=True)
class RoundPlan:
    """A round before it is run.

    Attributes:
        ids: participants, ascending; with ``mode: async`` one may occur twice. shard_ids: number of the shard each holds.
        shards: positions in the training set.
        present: clients present and the shards they hold. mean_size: their mean number of samples.
        departed: clients that have left since the last round, whose memories are lost; None if the same clients are present.
        participation_fraction: expected share of the population that is drawn. t: round, for what changes over rounds.
        local: settings of training: the run's, possibly with another amount of work, batch size and rate.
        seed, purpose, keys: of the draws of batches.
        starts: with ``mode: async``, what each participant started from.
        drawn: batches that were drawn ahead for the plan as it was made.
        rests: whether the algorithm lets nobody take part.
    """

    ids: list[int]
    shard_ids: list[int]
    shards: Sequence[Ints]
    present: Assignment
    mean_size: float
    departed: Ints | None
    participation_fraction: float
    session: int
    session_round: int
    t: int
    lr: float
    local: LocalSettings
    seed: int
    purpose: str
    keys: tuple[int, ...]
    starts: JobStarts | None = None
    drawn: Drawn | None = None
    rests: bool = False

    @property
    def population(self) -> int:
        return len(self.present.clients)

    @property
    def mean_steps(self) -> int:
        """L, local steps of a client of mean size."""
        return step_count(int(np.ceil(self.mean_size)), self.mean_size, self.local)

    @property
    def keeps(self) -> Tensor:
        """Whether the memories of each participant are kept, bool [C]."""
        return torch.ones(len(self.ids), dtype=torch.bool) if self.starts is None else torch.tensor(self.starts.keeps)

    @property
    def rate(self) -> float | list[float]:
        """Learning rate of the participants, a list if they differ."""
        rates = [self.lr] if self.starts is None else self.starts.lr
        return rates[0] if len(set(rates)) == 1 else rates


def draws(plan: RoundPlan, local: LocalSettings | None = None, number: int = 0) -> Draws:
    """What the batches of a phase are drawn from; those of the first one have the keys of the round alone.

    ``local``: settings of the phase, or those of the plan. ``number``: of the phase.
    """
    drawn = plan.ids if plan.starts is None else plan.starts.numbers
    keys = (*plan.keys, number) if number else plan.keys
    return plan.shards, drawn, local or plan.local, plan.mean_size, plan.seed, plan.purpose, keys


def plan_round(settings: RunSettings, timeline: Timeline, rule: Participation, t: int) -> RoundPlan:
    """The plan of round ``t`` (0-based) of the run, whose participants a rule draws; nobody if those drawn are absent."""
    eligible = eligible_clients(timeline.drawn_from or timeline, t)
    drawn = rule.draw(eligible.clients, t, settings.seed)
    contract.positions(rule, "draw", [drawn], 1, len(eligible.clients))
    if not len(drawn) or (np.diff(drawn) <= 0).any():
        raise broken_contract(rule, "draw", f"ascending indices, at least one, got {drawn.tolist()}")
    return RoundPlan(
        **participants(timeline, timeline.cohort(Assignment(eligible.clients[drawn], eligible.shards[drawn]), t)),
        **of_round(settings, timeline, t, timeline.at(t)),
        departed=departures(timeline, t),
        participation_fraction=rule.participation_fraction(len(eligible.clients)),
        purpose="batches",
        keys=(t,),
    )


def plan_gradient_round(timeline: Timeline, t: int, v: int, local: LocalSettings, seed: int) -> RoundPlan:
    """The plan of gradient round ``v`` (0-based), of training ``local``, before the session that begins with round ``t``."""
    session = int(timeline.session_of_round[t])
    return RoundPlan(
        **participants(timeline, eligible_clients(timeline, t)),
        present=timeline.at(t),
        mean_size=timeline.mean_size_of(timeline.at(t)),
        departed=None,
        participation_fraction=1.0,
        session=session,
        session_round=v,
        t=v,
        lr=local.lr,
        local=local,
        seed=seed,
        purpose="gradient",
        keys=(session, v),
    )


def participants(timeline: Timeline, drawn: Assignment) -> dict[str, Any]:
    """``ids``, ``shard_ids`` and ``shards`` of a plan."""
    shards = [timeline.shards[shard] for shard in drawn.shards]
    return {"ids": drawn.clients.tolist(), "shard_ids": drawn.shards.tolist(), "shards": shards}


def of_round(settings: RunSettings, timeline: Timeline, t: int, present: Assignment) -> dict[str, Any]:
    """What of a plan does not depend on who takes part."""
    return {
        "present": present,
        "mean_size": timeline.mean_size_of(present),
        "session": int(timeline.session_of_round[t]),
        "session_round": t - timeline.session_span(t)[0],
        "t": t,
        "lr": rate_at(settings.local, timeline, t),
        "local": settings.local,
        "seed": settings.seed,
    }


def rate_at(local: LocalSettings, timeline: Timeline, t: int) -> float:
    """Learning rate of round ``t``."""
    first, length = timeline.session_span(t)
    return learning_rate(local, *((t - first, length) if local.restart else (t, timeline.rounds)))


def eligible_clients(timeline: Timeline, t: int) -> Assignment:
    """Clients present in round ``t`` that have data."""
    return timeline.eligible_of(timeline.at(t))


def departures(timeline: Timeline, t: int) -> Ints | None:
    """Clients present in the round before ``t`` that are no longer; None if the same clients are present."""
    if t == 0 or timeline.at(t) is timeline.at(t - 1):
        return None
    before, now = timeline.at(t - 1).clients, timeline.at(t).clients
    return None if np.array_equal(before, now) else np.setdiff1d(before, now)


def learning_rate(local: LocalSettings, t: int, rounds: int) -> float:
    """Rate of round ``t`` (0-based) of ``rounds`` rounds; T is ``local.schedule_rounds`` or else ``rounds``.

    ``polynomial``: (lr - min)(1 - t/T)^power + min; ``cosine``: min + (lr - min)(1 + cos(pi t/T))/2, min = min_lr_ratio * lr,
    both at min after T rounds; ``exponential``: lr * decay^t. The first ``warmup`` rounds have lr (t + 1) / (warmup + 1), and
    the schedule begins after them, with t = 0 and T shorter by them unless it is given. Within a round the rate is constant:
    the formulas of many algorithms divide by it.
    """
    if t < local.warmup:
        return local.lr * (t + 1) / (local.warmup + 1)
    t, rounds = t - local.warmup, rounds - local.warmup
    lowest = local.min_lr_ratio * local.lr
    progress = min(t / (local.schedule_rounds or rounds), 1.0)
    if local.schedule == "exponential":
        return float(local.lr * local.decay**t)
    if local.schedule == "cosine":
        return lowest + (local.lr - lowest) * (1 + math.cos(math.pi * progress)) / 2
    if local.schedule == "polynomial":
        return float((local.lr - lowest) * (1 - progress) ** local.power + lowest)
    return local.lr
