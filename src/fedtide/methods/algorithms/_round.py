"""The record ``r`` an algorithm's hooks work on: everything about one communication round."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from fedtide.core.array_types import Bools, Ints
from fedtide.methods.algorithms._problem import Problem, ServerVector
from fedtide.settings.groups.local import LocalSettings
from fedtide.training.engine.flat import add_weighted, add_weighted_updates
from fedtide.training.engine.local import momentum_steps
from fedtide.training.engine.plan import step_count

Result = TypeVar("Result")
Sums = Callable[[Tensor, Callable[[Tensor, slice], None]], Tensor]


class Vectors:
    """Named tensors read and written as attributes; assigning copies into the existing tensor, so shapes never change."""

    _tensors: dict[str, Tensor]

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        object.__setattr__(self, "_tensors", tensors)

    def __getattr__(self, name: str) -> Tensor:
        tensors = object.__getattribute__(self, "_tensors")
        if name not in tensors:
            raise AttributeError(f"no vector {name!r}; declared: {', '.join(tensors)}")
        found: Tensor = tensors[name]
        return found

    def __setattr__(self, name: str, value: Tensor) -> None:
        target = self.__getattr__(name)
        if target is not value:
            target.copy_(value)

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        return iter(object.__getattribute__(self, "_tensors").items())

    def rows(self, rows: slice) -> Vectors:
        """The same tensors restricted to some rows; writes go through."""
        return Vectors({name: value[rows] for name, value in self})


class ForwardPass(NamedTuple):
    """A model's outputs on n samples: ``features`` [n, q], the input of the last layer, ``logits`` [n, L]; ``labels`` [n]."""

    features: Tensor
    logits: Tensor
    labels: Tensor


class Population(NamedTuple):
    """The clients present in a round, K of them, by ascending id, int64 [K]: ``ids``, ``shards``, and ``samples`` in these.

    ``seen``: bool [K], whether it has a memory from an earlier round.
    """

    ids: Ints
    shards: Ints
    samples: Ints
    seen: Bools


def _here(total: Tensor, add: Callable[[Tensor, slice], None]) -> Tensor:
    """A sum over all participants of a round whose rows are all here; see :class:`Means`."""
    add(total, slice(None))
    return total


class Participations(NamedTuple):
    """How often participants have taken part: ``rounds`` [C, 1], this one included; ``expected`` share drawn per round."""

    rounds: Tensor
    expected: float


class Services(Protocol):
    """What the engine can compute for an algorithm.

    Passes over samples of the participants are computed by them, and charged in seconds and joules: a gradient on every
    sample, a forward pass as ``costs.passes`` says, a product with a Hessian as two gradients.
    """

    def forward(self, point: Tensor, shards: Sequence[Ints] | None = None) -> list[ForwardPass]:
        """All samples of each participant through the model ``point`` [d], in evaluation mode, not augmented.

        ``point`` [C, d] is a model for each. With ``shards`` these positions of the training set instead, for each participant.
        """

    def losses(self, models: Tensor, shards: Sequence[Ints] | None = None) -> Tensor:
        """Mean cross-entropy [C, M] of each of some models [M, d] on all samples of each participant; infinite without any.

        With ``shards`` on these positions of the training set instead, for each participant.
        """

    def concepts(self) -> Tensor:
        """Share of each participant's samples that it sees under each concept of the world, [C, concepts]."""

    def changed(self) -> Ints:
        """Clients present in this round and in the one before it whose concept has changed, ascending ids."""

    def full_gradient(self, points: Tensor, shards: Sequence[Ints] | None = None) -> Tensor:
        """Gradient [C, d] of each participant's mean loss over all its samples at ``points`` ([d] or [C, d]).

        With ``shards`` of the mean losses over these positions of the training set instead: a measurement, which is free.
        """

    def taylor(self, points: Tensor, probes: int | None, first: int = 0) -> tuple[Tensor, Tensor]:
        """Gradient and diagonal of the Hessian [C, d - first] of the same losses at ``points`` ([d] or [C, d]).

        The diagonal is Hutchinson's estimate from ``probes`` Rademacher vectors, keyed by round and client; ``None`` for the
        exact one, which takes a Hessian-vector product per parameter. ``first``: index of the first parameter included.
        """

    def fisher_diagonal(self, points: Tensor, group: int = 1, first: int = 0) -> Tensor:
        """Mean square [C, d - first] of the gradients of consecutive groups of each participant's samples."""

    def with_input_gradients(
        self,
        points: Tensor,
        rows: Sequence[int],
        loss: Callable[[Tensor, Tensor], Tensor],
        use: Callable[[int, Callable[[Tensor, Tensor], Tensor]], Result],
    ) -> list[Result]:
        """``use(place, gradient)`` for models ``points`` [c, d] of the participants in some ``rows``, in evaluation mode.

        ``gradient`` maps samples [n, ...] with labels [n] to the gradient [n, ...] of ``loss(logits, labels)``, a number.
        The samples are points of the unit cube, which is mapped to the range of the data (pixels between black and white).
        """

    def add_samples(self, unit: Tensor, labels: Tensor) -> Ints:
        """Positions in the training set of synthetic samples: points [m, ...] of the unit cube with int64 labels [m].

        An algorithm that uses it declares in ``synthetic_per_shard`` the most it adds for every shard of a client.
        """

    def renew_statistics(self, points: Tensor) -> None:
        """Recompute BatchNorm's statistics of the participants' models ``points`` [C, d] from the samples they hold."""

    def positions(self, shard: int) -> Ints:
        """Positions in the training set of a shard of the timeline, by its number."""

    def labels(self, positions: Ints) -> Ints:
        """Labels of these positions of the training set."""

    def participations(self) -> Participations:
        """In how many rounds each participant has taken part, and the share of clients that is expected to."""

    def population(self) -> Population:
        """The clients present, participants and absent ones alike."""

    def population_counts(self) -> Tensor:
        """Samples per class of every client present, by ascending id: float64 [K, L] on the CPU."""


class CombiningRule(Protocol):
    """An aggregation rule in one round."""

    def models(self) -> Tensor:
        """The participants' models as one [d]."""

    def rows(self, rows: Tensor) -> Tensor:
        """Other rows of theirs [C, d] as one [d]."""

    def statistics(self, buffers: Tensor) -> Tensor:
        """Their BatchNorm statistics [C, q] as one row [q]."""


class Session(NamedTuple):
    """Where a round is: in the session of some ``number``, as its round ``round``, both from 0."""

    number: int
    round: int


class Job(NamedTuple):
    """What differs between the results of a round with ``mode: async``.

    Attributes:
        rate: learning rate, a column [C, 1] where they differ.
        staleness: [C, 1] updates of the global model since it was sent; 0.0 in rounds.
        keeps: [C, 1] 1.0 where the client's vectors are kept after the round: always in rounds; with events only the last
            result of a client in an update is, and none of one that has left.
    """

    rate: float | Tensor
    staleness: Tensor
    keeps: Tensor


class Models(NamedTuple):
    """Models [C, d] of the participants and their floating buffers [C, q]."""

    W: Tensor
    b: Tensor


@dataclass
class Means:
    """How the participants of a round are combined: ``declared`` vectors of the server may be means of the clients'.

    ``sums`` adds terms of the participants to zeros, in client order, where each process has its own; see ``sums`` in
    :data:`fedtide.methods.algorithms.base.ADMITS`. ``rule`` stands behind the means, None for weighted ones.
    """

    sums: Sums = _here
    rule: CombiningRule | None = None
    declared: Sequence[ServerVector] = ()


@dataclass
class Round:
    """One communication round, as an algorithm sees it. C participants, d parameters, N clients in all, L classes.

    Per-client quantities are columns [C, 1], ready for algebra with rows [C, d].

    Attributes:
        t: 0-based round. session: ``session.number``, and ``session.round`` in it, both from 0.
        lr: learning rate of the round; ``local.lr`` is that of the first round after the warm-up.
        w: [d] global model before the round. W: [C, d] local models: before training where they start, after it what arrives at
            the server.
        base: [C, d] the global models that the local ones started from, ``w`` unless ``mode: async``.
        trained: models ``trained.W`` [C, d] and floating buffers ``trained.b`` [C, q] as the clients have them; before training
            those that they start from.
        job: what differs between results with ``mode: async``: ``job.rate``, ``job.staleness`` and ``job.keeps``.
        server, client: memories: ``r.server.c`` [d], ``r.client.h`` [C, d]; assignments are kept.
        extra: named tensors of any shape kept by the algorithm.
        ids: client ids, ascending; with ``mode: async`` one may occur twice. shard_ids: number of the shard each holds.
        n: [C, 1] samples. mean_size: samples of a client present, on average.
        steps: [C, 1] local steps.
        weights: [C, 1] of the average: the weighting's, in ``finish`` what :meth:`Algorithm.weights` returned.
        population: clients present |K|. seen: [C, 1] 1.0 if a participant has a memory from an earlier round, else 0.0.
        label_counts: [C, L]. local: settings of training on a client.
        services: full gradients, passes over the clients' data, class counts of all clients.
        problem: what is fixed before the first round, as in ``self.problem``: ``layout``, ``clients``, ``classes``, ``rounds``,
            ``randomness``.
        means: what stands behind the means.
    """

    t: int
    session: Session
    lr: float
    w: Tensor
    W: Tensor
    base: Tensor
    trained: Models
    job: Job
    server: Vectors
    client: Vectors
    extra: dict[str, Tensor]
    ids: list[int]
    shard_ids: list[int]
    n: Tensor
    mean_size: float
    steps: Tensor
    weights: Tensor
    population: int
    seen: Tensor
    label_counts: Tensor
    local: LocalSettings
    services: Services
    problem: Problem
    means: Means

    @property
    def omega(self) -> Tensor:
        """[C, 1] samples over the population's mean."""
        return (self.n.to("cpu", torch.float64) / self.mean_size).to(self.w)

    @property
    def effective_steps(self) -> Tensor:
        """[C, 1] displacement per unit gradient and learning rate, momentum included; of another optimizer the local steps."""
        local = self.local
        return momentum_steps(self.steps.cpu(), local.momentum, local.nesterov).to(self.w)

    @property
    def mean_steps(self) -> int:
        """Local steps of a client of mean size, as ``step_count`` gives them."""
        return step_count(math.ceil(self.mean_size), self.mean_size, self.local)

    def carry(self, **rows: Tensor) -> None:
        """Rows [C, ...] that participants carry through this round alone, beside what they remember, in ``r.client``.

        Called before they train; :meth:`Algorithm.direction` may write to them.
        """
        known = dict(self.client)
        if double := known.keys() & rows:
            raise TypeError(f"r.carry: {', '.join(sorted(double))}: this name is already in use for a client vector")
        self.client = Vectors({**known, **rows})

    def move(self, name: str, change: Tensor, share: Tensor | None = None) -> None:
        """Add ``change`` [C, d] to the participants' vectors ``r.client.<name>``; what is declared as their mean moves along.

        Args:
            share: [C, 1] what each change counts in that mean; None for one over the number of clients present, times the
                relative size where the mean is by size, divided after the sum.
        """
        getattr(self.client, name).add_(change)
        for vector in self.means.declared:
            if vector.mean_of == name:
                if share is None:
                    moved = self.total(self.omega * change if vector.by_size else change) / self.population
                else:
                    moved = self.total(share * change)
                getattr(self.server, vector.name).add_(moved)

    def scheduled(self, rate: float) -> float:
        """Another learning rate in this round, with the run's schedule."""
        return rate * self.lr / self.local.lr

    def average(self, step: float = 1.0) -> Tensor:
        """The server's plain step ``w + step * sum_k p_k (W_k - w)`` [d]; for a step of one the mean local model.

        By the run's aggregation rule, if it has one.
        """
        mean = self.weighted_mean(self.W) if self.means.rule is None else self.means.rule.models()
        return mean if step == 1 else (1 - step) * self.w + step * mean

    def mean(self, rows: Tensor) -> Tensor:
        """Mean [d] of rows [C, d] that clients send beside or in the place of their models: the weighted one, or by the rule.

        Of the models themselves it is :meth:`average`, since a rule combines how far they have moved.
        """
        if rows is self.W:
            raise TypeError("r.mean(r.W): use r.average() for the mean of the local models; r.mean is for other rows")
        return self.weighted_mean(rows) if self.means.rule is None else self.means.rule.rows(rows)

    def weighted_mean(self, rows: Tensor) -> Tensor:
        """Mean of per-client rows [C, ...] of any quantity with the round's weights, added in client order."""
        return self._sum(self.weights[:, 0], rows)

    def statistics(self, buffers: Tensor) -> Tensor:
        """One row [q] of BatchNorm's statistics from those of the participants [C, q]."""
        return self.weighted_mean(buffers) if self.means.rule is None else self.means.rule.statistics(buffers)

    def mean_update(self, scale: Tensor) -> Tensor:
        """The same average [d] of the clients' updates ``W - base``, each times its ``scale`` [C, 1]."""
        if self.means.rule is not None:
            return self.means.rule.rows(scale * (self.W - self.base))

        def add(total: Tensor, some: slice) -> None:
            add_weighted_updates(total, self.weights[some, 0], scale[some], self.W[some], self.base[some])

        return self.means.sums(torch.zeros_like(self.w), add)

    def total(self, rows: Tensor) -> Tensor:
        """Plain sum [d] of per-client rows [C, d], added in client order."""
        return self._sum(self.weights.new_ones(len(self.ids)), rows)

    def _sum(self, weights: Tensor, rows: Tensor) -> Tensor:
        return self.means.sums(
            torch.zeros_like(rows[0]), lambda total, some: add_weighted(total, weights[some], rows[some])
        )

    def rows(self, rows: slice) -> Round:
        """The same round seen by some participants only, for hooks that work on a part of the cohort."""
        names = "W", "base", "n", "steps", "weights", "seen", "label_counts"
        rate, staleness, keeps = self.job
        return replace(
            self,
            trained=Models(*(values[rows] for values in self.trained)),
            job=Job(rate if isinstance(rate, float) else rate[rows], staleness[rows], keeps[rows]),
            ids=self.ids[rows],
            shard_ids=self.shard_ids[rows],
            client=self.client.rows(rows),
            means=replace(self.means, sums=_here),
            **{name: getattr(self, name)[rows] for name in names},
        )
