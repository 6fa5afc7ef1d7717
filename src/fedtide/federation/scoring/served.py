"""The models that clients are served: clusters and personal models, each on its client's own data."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedtide.algorithms.base import Algorithm, Served, ServedTo, Vectors
from fedtide.core.array_types import Ints
from fedtide.core.faults import broken_contract
from fedtide.engine import contract
from fedtide.engine.flat import Layout
from fedtide.engine.passes.evaluation import Scores, mean_losses
from fedtide.federation.round import RoundResult
from fedtide.federation.scoring.evaluator import Evaluator, ModelValues
from fedtide.federation.state import RunState


@dataclass(frozen=True)
class ServedModels:
    """Evaluates :meth:`Algorithm.served`; training is the same with and without."""

    algorithm: Algorithm
    layout: Layout
    evaluator: Evaluator

    def scores(self, state: RunState, result: RoundResult, t: int, tested: list[Ints]) -> list[Scores]:
        """Scores per class of the clients present in round ``t``, in order, on the samples ``tested``; a cohort at a time."""
        clients = self.evaluator.timeline.at(t).clients
        size = len(result.members[0])
        scores: list[Scores] = []
        for start in range(0, len(clients), size):
            some = slice(start, start + size)
            found = self._models(state, result, t, some)
            models = found.models, result.b.expand(len(found.models), -1)
            scores += self._each(models, found.of.tolist(), tested[some])
        return scores

    def _each(self, models: ModelValues, of: list[int], tested: list[Ints]) -> list[Scores]:
        """Scores of each client; a model is evaluated once on samples that several clients share."""
        pairs = [(model, id(positions)) for model, positions in zip(of, tested, strict=True)]
        first = {pair: place for place, pair in reversed(list(enumerate(pairs)))}
        places = sorted(first.values())
        found = self.evaluator.each(models, [of[place] for place in places], [tested[place] for place in places])
        scores = dict(zip(places, found, strict=True))
        return [scores[first[pair]] for pair in pairs]

    def _models(self, state: RunState, result: RoundResult, t: int, some: slice) -> Served:
        evaluator, here = self.evaluator, self.evaluator.timeline.at(t)
        clients, held = here.clients[some], here.shards[some]

        def losses(models: Tensor) -> Tensor:
            shards = [evaluator.timeline.shards[shard] for shard in held]
            return mean_losses(evaluator.workers, models, result.b, shards, evaluator.batch)

        ids, w = torch.from_numpy(clients), result.w
        rows = {
            name: state.memory[name][ids.to(state.memory[name].device)].to(w.device) for name in self.algorithm.client
        }
        seen = state.seen[ids].unsqueeze(1).to(w)
        shares = torch.from_numpy(evaluator.timeline.shares_of(held)).to(w)
        found = self.algorithm.served(
            ServedTo(clients.tolist(), w, Vectors(rows), seen, dict(state.extra), self.layout, losses, shares)
        )
        if found is None:
            return Served(w.unsqueeze(0), ids.new_zeros(len(ids)).numpy())
        if not isinstance(found, Served):
            raise broken_contract(self.algorithm, "served", f"Served or None, got {type(found).__name__}")
        models = contract.tensor(self.algorithm, "served", found.models, w, (len(found.models), len(w)))
        (of,) = contract.positions(self.algorithm, "served", [found.of], 1, len(models))
        if len(of) != len(ids):
            raise broken_contract(self.algorithm, "served", f"a model for each of {len(ids)} clients, got {len(of)}")
        return Served(models, of)
