"""The models that clients are served, and what a few local steps make of them, each on its client's own data."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedtide.core.array_types import Ints
from fedtide.core.discovery.faults import broken_contract
from fedtide.federation.features.kept_models import LAST_SERVED
from fedtide.federation.scoring.evaluator import Evaluator, ModelValues, part_of
from fedtide.federation.types import Parts, RunState
from fedtide.methods.algorithms.base import Served, ServedTo, Vectors
from fedtide.training.engine import contract
from fedtide.training.engine.local import Cohort, Local
from fedtide.training.engine.optimizers import optimizer
from fedtide.training.engine.passes.evaluation import Scores
from fedtide.training.engine.passes.metrics import Fit, fit, mean_losses
from fedtide.training.engine.plan import plan_batches
from fedtide.world.presence.membership import last_shards

_TOGETHER = 1 << 24
"""Numbers in the models of clients that are asked for together."""


@dataclass(frozen=True)
class ServedModels:
    """Evaluates :meth:`Algorithm.served`; training is the same with and without."""

    parts: Parts

    @property
    def evaluator(self) -> Evaluator:
        return self.parts.evaluator

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
        found: list[Fit] = []
        evaluator = self.evaluator
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
        scores: list[Scores] = []
        kept = state.memory[LAST_SERVED]
        for some in np.split(np.arange(len(departed)), range(size, len(departed), size)):
            rows = kept[torch.from_numpy(departed[some]).to(kept.device)].to(state.w.device)
            models = rows[:, : self.parts.layout.size], rows[:, self.parts.layout.size :]
            scores += self.evaluator.each(models, range(len(some)), [tested[place] for place in some])
        return scores

    def finetuned(self, state: RunState, t: int, size: int, lr: float, tested: list[Ints]) -> list[Scores]:
        """Scores after ``evaluation.finetune_steps`` plain local steps of each on a copy of the model that it is served.

        Settings and objective are those of local training, the rate is ``lr`` unless the algorithm sets another one; there are
        no terms, corrections or client state. Nothing is charged, and the draws have their own keys, so training is the same
        with and without. A client without training samples keeps its model.
        """
        parts, evaluator, timeline, data = self.parts, self.evaluator, self.evaluator.timeline, self.evaluator.data
        clients, shards, sizes = timeline.at(t).clients.tolist(), timeline.shards_at(t), timeline.sizes_at(t)
        evaluation, rate = parts.settings.evaluation, parts.algorithm.personal_lr
        local, part = parts.settings.local.with_work(evaluation.finetune_steps, "steps"), evaluation.finetune_part
        scores: list[Scores] = []
        for first in range(0, len(clients), size):
            some = slice(first, first + size)
            keys = parts.settings.seed, "personalise", (t,), state.w.device, data.classes
            plan = plan_batches(shards[some], clients[some], local, float(sizes.mean()), *keys)
            W, buffers = self.rows(state, t, some)
            cohort = Cohort(
                W=W,
                buffers=buffers,
                moments=optimizer(local).at_rest(W),
                b=state.b,
                plan=plan,
                label_counts=data.label_counts(shards[some]).to(W),
                lr=lr if rate is None else rate,
                added=Local(),
                losses=torch.zeros(len(W), dtype=W.dtype, device=W.device),
                trains=None if part == "all" else parts.layout.mask(part),
            )
            parts.executor.begin(cohort)(plan.longest)
            scores += evaluator.each((W, buffers), range(len(W)), tested[some])
        return scores

    def _each(self, models: ModelValues, of: list[int], tested: list[Ints]) -> list[Scores]:
        """Scores of each client; a model is evaluated once on samples that several clients share."""
        pairs = [(model, id(positions)) for model, positions in zip(of, tested, strict=True)]
        first = {pair: place for place, pair in reversed(list(enumerate(pairs)))}
        places = sorted(first.values())
        found = self.evaluator.each(models, [of[place] for place in places], [tested[place] for place in places])
        scores = dict(zip(places, found, strict=True))
        return [scores[first[pair]] for pair in pairs]

    def of_owners(self, state: RunState, t: int, owners: Ints) -> Iterator[tuple[ModelValues, Ints, list[Ints]]]:
        """What the owners of some samples are served after round ``t``, a part of them at a time.

        Models, which of them each of these clients uses, and the positions of its samples in ``owners``. Owners that never are
        clients of the run come last, together, with what a newcomer gets.
        """
        numbers, timeline = self.evaluator.timeline.origin_of_client, self.evaluator.timeline
        client_of = np.full(int(max(numbers.max(), owners.max(initial=0))) + 1, -1, dtype=np.int64)
        client_of[numbers] = np.arange(timeline.num_clients)
        clients = client_of[owners]
        order = np.argsort(clients, kind="stable")
        known, starts = np.unique(clients[order], return_index=True)
        places = np.split(order, starts[1:])
        if len(known) and known[0] < 0:
            yield self.newcomer(state), np.zeros(1, dtype=np.int64), places[:1]
            known, places = known[1:], places[1:]
        size = max(1, _TOGETHER // self.parts.layout.size)
        for start in range(0, len(known), size):
            some = slice(start, start + size)
            models, of = self._served(state, t, known[some])
            yield models, of, places[some]

    def _served(self, state: RunState, t: int, clients: Ints) -> tuple[ModelValues, Ints]:
        """Models, and which of them some clients use after round ``t``, ascending ids; by the samples that each last held."""
        ids = torch.from_numpy(clients)
        rows = {
            name: state.memory[name][ids.to(state.memory[name].device)].to(state.w.device)
            for name in self.parts.algorithm.client
        }
        held = last_shards(self.evaluator.timeline, t)[clients]
        return self._ask(state, clients.tolist(), rows, state.seen[ids], dict(state.extra), held)

    def newcomer(self, state: RunState) -> ModelValues:
        """The model [1, d] that a client gets of which nothing is known, and its floating buffers [1, q]."""
        extra = {name: value.clone() for name, value in state.extra.items()}
        self.parts.algorithm.forget(extra, torch.zeros(1, dtype=torch.int64))  # as of a client that has left
        rows = {
            name: torch.zeros_like(state.memory[name][:1], device=state.w.device)
            for name in self.parts.algorithm.client
        }
        nothing = np.full(1, -1, dtype=np.int64)
        (models, buffers), of = self._ask(state, [0], rows, torch.zeros(1, dtype=torch.bool), extra, nothing)
        return models[of], buffers[of]

    def _ask(
        self,
        state: RunState,
        ids: list[int],
        rows: dict[str, Tensor],
        seen: Tensor,
        extra: dict[str, Tensor],
        held: Ints,
    ) -> tuple[ModelValues, Ints]:
        """What the algorithm serves to clients; ``held``: numbers of their shards, -1 for none."""
        timeline, workers, w, b = self.evaluator.timeline, self.evaluator.workers, state.w, state.b

        def losses(models: Tensor) -> Tensor:
            shards = [timeline.shards[shard] if shard >= 0 else held[:0] for shard in held]
            return mean_losses(workers, models, b, shards, self.evaluator.batch)

        shares = torch.from_numpy(np.where(held[:, None] >= 0, timeline.shares_of(held), 0.0)).to(w)
        known = seen.unsqueeze(1).to(w)
        found = self.parts.algorithm.served(
            ServedTo(ids, w, b, Vectors(rows), known, extra, self.parts.layout, losses, shares)
        )
        if found is None:
            return (w.unsqueeze(0), b.unsqueeze(0)), np.zeros(len(ids), dtype=np.int64)
        if not isinstance(found, Served):
            raise broken_contract(self.parts.algorithm, "served", f"Served or None, got {type(found).__name__}")
        models = contract.tensor(self.parts.algorithm, "served", found.models, w, (len(found.models), len(w)))
        (of,) = contract.positions(self.parts.algorithm, "served", [found.of], 1, len(models))
        if len(of) != len(ids):
            raise broken_contract(
                self.parts.algorithm, "served", f"a model for each of {len(ids)} clients, got {len(of)}"
            )
        buffers = b.expand(len(models), -1) if found.buffers is None else found.buffers
        contract.tensor(self.parts.algorithm, "served", buffers, b, (len(models), len(b)))
        return (models, buffers), of
