"""What the engine computes for an algorithm in one round."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from fedtide.core.array_types import Floats, Ints
from fedtide.core.discovery.faults import broken_contract
from fedtide.core.randomness import generator
from fedtide.federation.features.synthetic import SyntheticSamples
from fedtide.federation.rounds.plan import RoundPlan
from fedtide.federation.types import Parts, RunState
from fedtide.methods.algorithms.base import ForwardPass, Participations, Population
from fedtide.training.engine.passes.curvature import fisher_diagonal, taylor, unit_vectors
from fedtide.training.engine.passes.evaluation import full_gradient, pass_through
from fedtide.training.engine.passes.metrics import mean_losses
from fedtide.training.engine.passes.models import recompute_statistics, with_input_gradients

Result = TypeVar("Result")


class RoundServices:
    """See :class:`fedtide.methods.algorithms.base.Services`; ``state`` is before the round.

    ``held`` are the participants' samples per class [C, L], and ``counts`` the same as the objective sees them.
    ``passes``: what each has computed here, [C], in samples of a local step's gradient.
    """

    def __init__(self, parts: Parts, state: RunState, plan: RoundPlan, held: Tensor) -> None:
        self._parts, self._state, self._plan = parts, state, plan
        self.counts = self._prior(held, state.w)
        self._batch = parts.settings.evaluation.batch_size
        self._forward = 1 / parts.settings.costs.passes
        self.buffers = state.b  # the participants' [C, q] after training
        self.passes: Floats = np.zeros(len(plan.ids))

    def charge(self, times: Floats | float, shards: Sequence[Ints] | None = None) -> None:
        """Charge the participants for so many gradients on each of these samples, or their own."""
        sizes = [len(shard) for shard in (self._plan.shards if shards is None else shards)]
        if len(sizes) != len(self.passes):
            raise broken_contract(self._parts.algorithm, "r.services", "samples of each participant, empty for none")
        self.passes += np.array(sizes) * times

    def charge_losses(self, asked: Sequence[int]) -> None:
        """Charge each participant for the losses of so many models."""
        self.charge(self._forward * np.array(asked))

    def forward(self, point: Tensor, shards: Sequence[Ints] | None = None) -> list[ForwardPass]:
        self.charge(self._forward, shards)
        data = list(self._plan.shards if shards is None else shards)
        found = pass_through(self._parts.workers, point, self._state.b, data, self._batch)
        return [ForwardPass(*part) for part in found]

    def losses(self, models: Tensor, shards: Sequence[Ints] | None = None) -> Tensor:
        self.charge(len(models) * self._forward, shards)
        samples = self._plan.shards if shards is None else shards
        return mean_losses(self._parts.workers, models, self._state.b, samples, self._batch)

    def concepts(self) -> Tensor:
        return torch.from_numpy(self._parts.timeline.shares_of(self._plan.shard_ids)).to(self._state.w)

    def changed(self) -> Ints:
        return self._parts.timeline.changed_at(self._plan.t)

    def full_gradient(self, points: Tensor, shards: Sequence[Ints] | None = None) -> Tensor:
        parts, data, counts = self._parts, self._plan.shards, self.counts
        if shards is None:
            self.charge(1)
        else:
            data, counts = shards, self._prior(parts.data.label_counts(shards), points)
        return full_gradient(parts.workers, points, self._state.b, list(data), self._batch, counts)

    def taylor(self, points: Tensor, probes: int | None, first: int = 0) -> tuple[Tensor, Tensor]:
        parts, plan, size = self._parts, self._plan, points.shape[-1] - first
        self.charge(1 + 2 * (size if probes is None else probes))

        def directions(row: int) -> Iterator[Tensor]:
            if probes is None:
                yield from unit_vectors(size, points)
                return
            draws = generator(plan.seed, f"{plan.purpose}.probes", *plan.keys, plan.ids[row])
            for _ in range(probes):
                yield torch.from_numpy(draws.integers(0, 2, size)).to(points).mul_(2).sub_(1).div_(probes**0.5)

        where = (parts.workers, points, self._state.b, plan.shards)
        return taylor(*where, self._batch, self.counts, directions, first)

    def fisher_diagonal(self, points: Tensor, group: int = 1, first: int = 0) -> Tensor:
        self.charge(1)
        where = (self._parts.workers, points, self._state.b, self._plan.shards)
        return fisher_diagonal(*where, group, self.counts, first)

    def with_input_gradients(
        self,
        points: Tensor,
        rows: Sequence[int],
        loss: Callable[[Tensor, Tensor], Tensor],
        use: Callable[[int, Callable[[Tensor, Tensor], Tensor]], Result],
    ) -> list[Result]:
        parts = self._parts

        def prepared(unit: Tensor) -> Tensor:
            return parts.task.lay_out(self._synthetic.inputs(unit))

        def charged(place: int, gradient: Callable[[Tensor, Tensor], Tensor]) -> Result:
            def of(samples: Tensor, labels: Tensor) -> Tensor:
                self.passes[rows[place]] += len(labels)
                return gradient(samples, labels)

            return use(place, of)

        return with_input_gradients(parts.workers, points, self._state.b, loss, prepared, charged)

    def add_samples(self, unit: Tensor, labels: Tensor) -> Ints:
        return self._synthetic.add(self._state.extra, unit, labels)

    @property
    def _synthetic(self) -> SyntheticSamples:
        found = self._parts.feature(SyntheticSamples)
        if found is None:  # the algorithm adds none, with its settings
            found = SyntheticSamples(0)
            found.bind(self._parts)
        return found

    def renew_statistics(self, points: Tensor) -> None:
        own = [self.positions(shard) for shard in self._plan.shard_ids]
        self.charge(self._forward, own)
        batch = self._parts.settings.local.batch_size
        self.buffers.copy_(recompute_statistics(self._parts.workers, points, self.buffers, own, batch))

    def positions(self, shard: int) -> Ints:
        return self._parts.timeline.shards[shard]

    def labels(self, positions: Ints) -> Ints:
        return self._parts.data.classes(positions)

    def participations(self) -> Participations:
        counts = self._state.counts[torch.tensor(self._plan.ids)]
        return Participations(counts.unsqueeze(-1).to(self._state.w), self._plan.participation_fraction)

    def population(self) -> Population:
        present, sizes = self._plan.present, self._parts.timeline.sizes_of(self._plan.present)
        seen = self._state.seen[torch.from_numpy(present.clients)].cpu().numpy()
        return Population(present.clients, present.shards, sizes, seen)

    def _prior(self, counts: Tensor, like: Tensor) -> Tensor:
        """The clients' samples per class [C, L] as the objective sees them: each client's own, or those of all present."""
        if self._parts.task.objective.pooled:
            counts = self.population_counts().sum(0).expand_as(counts)
        return counts.to(like)

    def population_counts(self) -> Tensor:
        numbers = self._plan.present.shards.tolist()
        return self._parts.label_counts(numbers, [self.positions(number) for number in numbers])
