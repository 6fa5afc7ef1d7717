"""The models that clients are served, and what a few local steps make of them, each on its client's own data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedtide.core.array_types import Ints
from fedtide.core.discovery.faults import broken_contract
from fedtide.federation.features.kept_models import LAST_SERVED
from fedtide.federation.scoring.evaluator import Evaluator, ModelValues, part_of
from fedtide.federation.types import RunState
from fedtide.methods.algorithms.base import Algorithm, Served, ServedTo, Vectors
from fedtide.settings.run import RunSettings
from fedtide.training.engine import contract
from fedtide.training.engine.executors.executor import Executor
from fedtide.training.engine.flat import Layout
from fedtide.training.engine.local import Cohort, Local
from fedtide.training.engine.optimizers import optimizer
from fedtide.training.engine.passes.evaluation import Scores
from fedtide.training.engine.passes.fit import Fit, fit, mean_losses
from fedtide.training.engine.plan import plan_batches


@dataclass(frozen=True)
class ServedModels:
    """Evaluates :meth:`Algorithm.served`; training is the same with and without."""

    algorithm: Algorithm
    layout: Layout
    evaluator: Evaluator

    @property
    def keeps_last(self) -> bool:
        """Whether the model that a client was served last is kept when it leaves."""
        return self.evaluator.settings.departed_clients == "last_model"

    def scores(self, state: RunState, t: int, size: int, tested: list[Ints]) -> list[Scores]:
        """Scores per class of the clients present in round ``t``, in order, on the samples ``tested``; ``size`` at a time."""
        clients = self.evaluator.timeline.at(t).clients
        scores: list[Scores] = []
        for start in range(0, len(clients), size):
            some = slice(start, start + size)
            models, of = self._served(state, t, clients[some])
            scores += self._each(models, of.tolist(), tested[some])
        return scores

    def fits(self, state: RunState, t: int, size: int, tested: list[Ints]) -> list[Fit]:
        """The same for a task without classes."""
        evaluator, found = self.evaluator, list[Fit]()
        part = part_of(evaluator.settings.splits[0])
        for start in range(0, len(tested), size):
            some = slice(start, start + size)
            rows = zip(*self.rows(state, t, some), tested[some], strict=True)
            for w, b, positions in rows:
                samples = evaluator.data.read(part, evaluator.on_device(positions))
                found.append(fit(evaluator.workers, w, b, *samples, evaluator.batch))
        return found

    def rows(self, state: RunState, t: int, some: slice | Ints) -> ModelValues:
        """The models of some of the clients present, by place: parameters [c, d] and floating buffers [c, q]."""
        (models, buffers), of = self._served(state, t, self.evaluator.timeline.at(t).clients[some])
        places = torch.from_numpy(of).to(models.device)
        return models[places], buffers[places]

    def keep_last(self, state: RunState, t: int, size: int) -> None:
        """Keep the models of clients that are present in round ``t`` for the last time."""
        timeline = self.evaluator.timeline
        if t + 1 == timeline.rounds or timeline.at(t) is timeline.at(t + 1):
            return
        here = timeline.at(t).clients
        places = np.flatnonzero(~np.isin(here, timeline.at(t + 1).clients))
        kept = state.memory[LAST_SERVED]
        for some in np.split(places, range(size, len(places), size)):
            kept[torch.from_numpy(here[some]).to(kept.device)] = torch.cat(self.rows(state, t, some), 1).to(kept)
        state.written[torch.from_numpy(here[places])] = t + 1

    def last_scores(self, state: RunState, departed: Ints, tested: list[Ints], size: int) -> list[Scores]:
        """Scores of clients that have left, each with the model that it was served last; ``size`` at a time."""
        kept, scores = state.memory[LAST_SERVED], list[Scores]()
        for some in np.split(np.arange(len(departed)), range(size, len(departed), size)):
            rows = kept[torch.from_numpy(departed[some]).to(kept.device)].to(state.w.device)
            models = rows[:, : self.layout.size], rows[:, self.layout.size :]
            scores += self.evaluator.each(models, range(len(some)), [tested[place] for place in some])
        return scores

    def _each(self, models: ModelValues, of: list[int], tested: list[Ints]) -> list[Scores]:
        """Scores of each client; a model is evaluated once on samples that several clients share."""
        pairs = [(model, id(positions)) for model, positions in zip(of, tested, strict=True)]
        first = {pair: place for place, pair in reversed(list(enumerate(pairs)))}
        places = sorted(first.values())
        found = self.evaluator.each(models, [of[place] for place in places], [tested[place] for place in places])
        scores = dict(zip(places, found, strict=True))
        return [scores[first[pair]] for pair in pairs]

    def _served(self, state: RunState, t: int, clients: Ints) -> tuple[ModelValues, Ints]:
        """Models, and which of them some of the clients present in round ``t`` use, ascending ids."""
        evaluator, here = self.evaluator, self.evaluator.timeline.at(t)
        held = here.shards[np.searchsorted(here.clients, clients)]

        def losses(models: Tensor) -> Tensor:
            shards = [evaluator.timeline.shards[shard] for shard in held]
            return mean_losses(evaluator.workers, models, b, shards, evaluator.batch)

        ids, w, b = torch.from_numpy(clients), state.w, state.b
        rows = {
            name: state.memory[name][ids.to(state.memory[name].device)].to(w.device) for name in self.algorithm.client
        }
        seen = state.seen[ids].unsqueeze(1).to(w)
        shares = torch.from_numpy(evaluator.timeline.shares_of(held)).to(w)
        found = self.algorithm.served(
            ServedTo(clients.tolist(), w, b, Vectors(rows), seen, dict(state.extra), self.layout, losses, shares)
        )
        if found is None:
            return (w.unsqueeze(0), b.unsqueeze(0)), ids.new_zeros(len(ids)).numpy()
        if not isinstance(found, Served):
            raise broken_contract(self.algorithm, "served", f"Served or None, got {type(found).__name__}")
        models = contract.tensor(self.algorithm, "served", found.models, w, (len(found.models), len(w)))
        (of,) = contract.positions(self.algorithm, "served", [found.of], 1, len(models))
        if len(of) != len(ids):
            raise broken_contract(self.algorithm, "served", f"a model for each of {len(ids)} clients, got {len(of)}")
        buffers = b.expand(len(models), -1) if found.buffers is None else found.buffers
        contract.tensor(self.algorithm, "served", buffers, b, (len(models), len(b)))
        return (models, buffers), of


Start = Callable[[slice], ModelValues]
"""Models [c, d] and floating buffers [c, q] of some of the clients present, by place."""


@dataclass(frozen=True)
class Personal:
    """Plain local steps of every client present, ``evaluation.finetune_steps`` of them, on a copy of the model it is served.

    They have the run's local settings and objective, without the algorithm's terms, corrections and client state; nothing is
    charged, and the draws have their own keys, so that training is the same with and without. A client without training
    samples keeps its model.

    Attributes:
        trains: bool [d], the parameters that are trained, None for all. lr: their learning rate, None for that of the round.
    """

    settings: RunSettings
    evaluator: Evaluator
    executor: Executor
    trains: Tensor | None
    lr: float | None

    def scores(
        self, state: RunState, t: int, size: int, lr: float, tested: list[Ints], start: Start | None = None
    ) -> list[Scores]:
        """Scores per class after these steps, of the clients present in order, each on the samples ``tested``.

        ``size`` clients are trained at a time. ``start`` gives their own models; without it all start from the global one.
        """
        evaluator, timeline, data = self.evaluator, self.evaluator.timeline, self.evaluator.data
        clients, shards, sizes = timeline.at(t).clients.tolist(), timeline.shards_at(t), timeline.sizes_at(t)
        local = self.settings.local.with_work(self.settings.evaluation.finetune_steps, "steps")
        scores: list[Scores] = []
        for first in range(0, len(clients), size):
            some = slice(first, first + size)
            keys = self.settings.seed, "personalise", (t,), state.w.device, data.classes
            plan = plan_batches(shards[some], clients[some], local, float(sizes.mean()), *keys)
            count = len(plan.steps)
            shared = state.w.expand(count, -1), state.b.expand(count, -1)
            W, buffers = (rows.clone() for rows in (start(some) if start else shared))
            cohort = Cohort(
                W=W,
                buffers=buffers,
                moments=optimizer(local).at_rest(W),
                b=state.b,
                plan=plan,
                label_counts=data.label_counts(shards[some]).to(W),
                lr=lr if self.lr is None else self.lr,
                added=Local(),
                losses=torch.zeros(count, dtype=W.dtype, device=W.device),
                trains=self.trains,
            )
            self.executor.begin(cohort)(plan.longest)
            scores += evaluator.each((W, buffers), range(count), tested[some])
        return scores
