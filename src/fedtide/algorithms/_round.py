"""The record ``r`` an algorithm's hooks work on: everything about one communication round."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from fedtide.core.array_types import Bools, Ints
from fedtide.core.randomness import Randomness
from fedtide.engine.flat import Layout, add_weighted, add_weighted_updates
from fedtide.settings.run import LocalSettings

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
    """A model's outputs on a client's n samples.

    Attributes:
        features: [n, q], the input of the last layer. logits: [n, L]. labels: [n], of the samples.
    """

    features: Tensor
    logits: Tensor
    labels: Tensor


class Population(NamedTuple):
    """The clients present in a round, K of them, by ascending id.

    Attributes:
        ids: int64 [K]. samples: int64 [K], what each holds.
        seen: bool [K], whether it has a memory from an earlier round.
    """

    ids: Ints
    samples: Ints
    seen: Bools


def _here(total: Tensor, add: Callable[[Tensor, slice], None]) -> Tensor:
    """A sum over all participants of a round whose rows are all here; see ``Round.sums``."""
    add(total, slice(None))
    return total


class Services(Protocol):
    """What the engine can compute for an algorithm."""

    def forward(self, point: Tensor, shards: Sequence[Ints] | None = None) -> list[ForwardPass]:
        """All samples of each participant through the model ``point`` [d], in evaluation mode, not augmented.

        ``point`` [C, d] is a model for each. With ``shards`` these positions of the training set instead.
        """

    def losses(self, models: Tensor, shards: Sequence[Ints] | None = None) -> Tensor:
        """Mean cross-entropy [C, M] of each of some models [M, d] on all samples of each participant; infinite without any.

        With ``shards`` on these positions of the training set instead.
        """

    def concepts(self) -> Tensor:
        """Share of each participant's samples that it sees under each concept of the world, [C, concepts]."""

    def changed(self) -> Ints:
        """Clients present in this round and in the one before it whose concept has changed, ascending ids."""

    def full_gradient(self, points: Tensor, shards: Sequence[Ints] | None = None) -> Tensor:
        """Gradient [C, d] of each participant's mean loss over all its samples at ``points`` ([d] or [C, d]).

        With ``shards`` of the mean losses over these positions of the training set instead.
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
        loss: Callable[[Tensor, Tensor], Tensor],
        use: Callable[[int, Callable[[Tensor, Tensor], Tensor]], Result],
    ) -> list[Result]:
        """``use(row, gradient)`` for models ``points`` [C, d], in evaluation mode.

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


@dataclass
class Round:
    """One communication round, as an algorithm sees it. C participants, d parameters, N clients in all, L classes.

    Per-client quantities are columns [C, 1], ready for algebra with rows [C, d].

    Attributes:
        t: 0-based round; ``rounds``: T, fixed in advance. session: 0-based. session_round: 0-based inside the session.
        lr: learning rate of the round; lr0: that of the first round after the warm-up. rate: that of the participants, a column
            [C, 1] where they differ, as with ``clock: events``.
        w: [d] global model before the round. W: [C, d] local models: before training where they start, after it what arrives at
            the server. trained: [C, d], after training the local models as the clients have them.
        b: [q] floating buffers of the global model before the round. buffers: [C, q] of the local models, as the clients have
            them.
        base: [C, d] the global models that the local ones started from, ``w`` unless ``clock: events``.
        staleness: [C, 1] updates of the global model since then, 0.0 unless ``clock: events``.
        keeps: [C, 1] 1.0 where the client's vectors are kept after the round: always unless ``clock: events``, where only the
            last result of a client in an update is, and none of one that has left.
        server, client: memories: ``r.server.c`` [d], ``r.client.h`` [C, d]; assignments are kept.
        extra: named tensors of any shape kept by the algorithm.
        ids: client ids, ascending; with ``clock: events`` one may occur twice. shard_ids: number of the shard each holds.
        n: [C, 1] samples. omega: [C, 1] n over the population's mean.
        steps: [C, 1] local steps. effective_steps: [C, 1] displacement per unit gradient and lr (momentum included;
            the local steps with another local optimiser than SGD).
        mean_steps: local steps of a client of mean size, as ``step_count`` gives them.
        weights: [C, 1] of the average: the weighting's, in ``finish`` what :meth:`Algorithm.weights` returned.
        population: clients present |K|; clients: N. participation_fraction: expected share of the population drawn per round.
        counts: [C, 1] rounds each participant took part in, this one included. seen: [C, 1] 1.0 if it has a memory from
            an earlier round, else 0.0.
        label_counts: [C, L]. layout: names and slices of the parameters. local: settings of training on a client.
        services: full gradients, passes over the clients' data, class counts of all clients.
        randomness: source of every draw of an algorithm, under a purpose and keys of its own.
        sums: adds terms of the participants to zeros, in client order; see ``sums`` in :class:`Algorithm`.
        rule: stands behind the means, or None for weighted ones.
    """

    t: int
    rounds: int
    session: int
    session_round: int
    lr: float
    lr0: float
    rate: float | Tensor
    w: Tensor
    W: Tensor
    trained: Tensor
    b: Tensor
    buffers: Tensor
    base: Tensor
    staleness: Tensor
    keeps: Tensor
    server: Vectors
    client: Vectors
    extra: dict[str, Tensor]
    ids: list[int]
    shard_ids: list[int]
    n: Tensor
    omega: Tensor
    steps: Tensor
    effective_steps: Tensor
    mean_steps: int
    weights: Tensor
    population: int
    clients: int
    participation_fraction: float
    counts: Tensor
    seen: Tensor
    label_counts: Tensor
    layout: Layout
    local: LocalSettings
    services: Services
    randomness: Randomness
    sums: Sums = _here
    rule: CombiningRule | None = None

    def scheduled(self, rate: float) -> float:
        """Another learning rate in this round, with the run's schedule."""
        return rate * self.lr / self.lr0

    def average(self, step: float = 1.0) -> Tensor:
        """The server's plain step ``w + step * sum_k p_k (W_k - w)`` [d]; for a step of one the mean local model.

        By the run's aggregation rule, if it has one.
        """
        mean = self.weighted_mean(self.W) if self.rule is None else self.rule.models()
        return mean if step == 1 else (1 - step) * self.w + step * mean

    def mean(self, rows: Tensor) -> Tensor:
        """Mean [d] of rows [C, d] that clients send beside or in the place of their models: the weighted one, or by the rule.

        Of the models themselves it is :meth:`average`, since a rule combines how far they have moved.
        """
        if rows is self.W:
            raise TypeError("r.mean(r.W): the mean of the local models is r.average(); r.mean is for other rows")
        return self.weighted_mean(rows) if self.rule is None else self.rule.rows(rows)

    def weighted_mean(self, rows: Tensor) -> Tensor:
        """Mean of per-client rows [C, ...] of any quantity with the round's weights, added in client order."""
        return self._sum(self.weights[:, 0], rows)

    def statistics(self, buffers: Tensor) -> Tensor:
        """One row [q] of BatchNorm's statistics from those of the participants [C, q]."""
        return self.weighted_mean(buffers) if self.rule is None else self.rule.statistics(buffers)

    def mean_update(self, scale: Tensor) -> Tensor:
        """The same average [d] of the clients' updates ``W - base``, each times its ``scale`` [C, 1]."""
        if self.rule is not None:
            return self.rule.rows(scale * (self.W - self.base))

        def add(total: Tensor, some: slice) -> None:
            add_weighted_updates(total, self.weights[some, 0], scale[some], self.W[some], self.base[some])

        return self.sums(torch.zeros_like(self.w), add)

    def total(self, rows: Tensor) -> Tensor:
        """Plain sum [d] of per-client rows [C, d], added in client order."""
        return self._sum(self.weights.new_ones(len(self.ids)), rows)

    def _sum(self, weights: Tensor, rows: Tensor) -> Tensor:
        return self.sums(torch.zeros_like(rows[0]), lambda total, some: add_weighted(total, weights[some], rows[some]))

    def rows(self, rows: slice) -> Round:
        """The same round seen by some participants only, for hooks that work on a part of the cohort."""
        names = (
            *("W", "trained", "buffers", "base", "staleness", "keeps", "n", "omega", "steps", "effective_steps"),
            *("weights", "counts", "seen", "label_counts"),
        )
        parts = {name: getattr(self, name)[rows] for name in names}
        return replace(
            self,
            ids=self.ids[rows],
            shard_ids=self.shard_ids[rows],
            client=self.client.rows(rows),
            rate=self.rate if isinstance(self.rate, float) else self.rate[rows],
            sums=_here,
            **parts,
        )
