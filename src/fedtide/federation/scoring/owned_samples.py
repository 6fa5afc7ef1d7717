"""Scores of the models that clients are served, on held-out samples that have owners: each by its owner's model."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedtide.core.array_types import Floats, Ints
from fedtide.federation.scoring.client_samples import owners, owners_of
from fedtide.federation.scoring.client_scores import cells, spread
from fedtide.federation.scoring.served import ServedModels
from fedtide.federation.types import RunState
from fedtide.methods.algorithms.base import overrides
from fedtide.settings.scores import OVER_CLIENTS, RECORDED, Score
from fedtide.training.engine.passes.evaluation import predict, predict_each
from fedtide.training.engine.passes.metrics import measure, recorded
from fedtide.world.timeline import HeldOut

Row = dict[str, float | None]


@dataclass(frozen=True)
class Outputs:
    """Outputs [n, L] of the models that the owners of some samples are served, float64 on the CPU, in their order.

    ``labels`` [n], on the CPU; ``owners`` int64 [n], numbers of clients in the data.
    """

    values: Tensor
    labels: Tensor
    owners: Ints


class OwnedSamples:
    """Scores of what clients are served at the end of a period, on its samples, on earlier ones, and on the next period's.

    Which model a client is served depends on what it holds, or last held, until then. An owner that has never been present, or
    whose state has been cleared, is served what the algorithm gives newcomers. An algorithm that serves the global model to
    all has its scores, to the bit. There are none where samples stand for several owners: under drift that not all samples
    follow, and where sessions evaluate different labels.
    """

    def __init__(self, served: ServedModels) -> None:
        self._served, self.evaluator, parts = served, served.evaluator, served.parts
        self._own = overrides(parts.algorithm, "served")
        self._names = (*RECORDED[parts.data.task], *self.evaluator.settings.metrics)
        apart = not self.evaluator.has_views and self.evaluator.timeline.mixture_at(0) is None
        splits = self.evaluator.settings.splits if apart else ()
        self.splits = [split for split in splits if owners(self.evaluator, split) is not None]

    @property
    def columns(self) -> list[str]:
        """Columns of the history; over clients only on the next period, where it is evaluated."""
        ahead = self.evaluator.timeline.looks_ahead
        over = [Score(f"served_{name}{end}") for name in self._names for end in ("", *OVER_CLIENTS)]
        plain = [Score(f"served_{name}") for name in self._names] if ahead else []
        scores = [*plain, *(score.next if ahead else score for score in over)]
        return [f"{split}_{score.name}" for split in self.splits for score in scores]

    def rows(self, state: RunState, t: int, split: str, wanted: Sequence[HeldOut | None]) -> list[Row]:
        """Scores after round ``t`` on each of some sets of samples, of the last one also over clients, by score."""
        found = self._outputs(state, t, split, wanted)
        rows = [self._row(state, split, held_out, outputs) for held_out, outputs in found]
        scores, _ = self._of_clients(found[-1][1])
        for name, values in scores.items():
            over = spread(values, lower=Score(name).lower)
            rows[-1] |= {f"served_{name}{end}": over[end.removeprefix("_")] for end in OVER_CLIENTS}
        return rows

    def clients(self, state: RunState, t: int, split: str, held_out: HeldOut) -> list[dict[str, Any]]:
        """A row per client with samples: its name, number of samples, and the main score of the served and the global model."""
        ((_, found),) = self._outputs(state, t, split, [held_out])
        main, names = self._names[0], self.evaluator.data.origins.clients
        scores, count = self._of_clients(found)
        columns = {"rows": count.tolist(), f"served_{main}": cells(scores[main])}
        if "global" in self._served.parts.algorithm.models:
            inputs, _ = self.evaluator.samples(split, held_out)
            values = predict(self.evaluator.workers, state.w, state.b, inputs, self.evaluator.batch)
            columns[main] = cells(self._of_clients(replace(found, values=values))[0][main])
        owners = [names[number] if names else str(number) for number in np.unique(found.owners).tolist()]
        rows = zip(owners, zip(*columns.values(), strict=True), strict=True)
        return [{"client": owner} | dict(zip(columns, row, strict=True)) for owner, row in rows]

    def _row(self, state: RunState, split: str, held_out: HeldOut | None, found: Outputs) -> Row:
        evaluator = self.evaluator
        if self._own:
            row = self._scores(found.values, found.labels)
        else:
            model = state.w, state.b
            row = evaluator.scores(model, split, None, held_out).row() | evaluator.metrics(model, split, held_out)
        return {f"served_{name}": row[name] for name in self._names}

    def _of_clients(self, found: Outputs) -> tuple[dict[str, Floats], Ints]:
        """Scores of each owner of samples, ascending, on its own, NaN where they are not defined; and how many it has."""
        order = np.argsort(found.owners, kind="stable")
        _, count = np.unique(found.owners, return_counts=True)
        values, labels = found.values[order], found.labels[order]
        parts = zip(torch.split(values, count.tolist()), torch.split(labels, count.tolist()), strict=True)
        rows = [self._scores(*part) for part in parts]
        return {name: np.array([row[name] for row in rows], dtype=np.float64) for name in self._names}, count

    def _scores(self, values: Tensor, labels: Tensor) -> Row:
        evaluator = self.evaluator
        return recorded(evaluator.data, values, labels) | measure(evaluator.settings.metrics, values, labels)

    def _outputs(
        self, state: RunState, t: int, split: str, wanted: Sequence[HeldOut | None]
    ) -> list[tuple[HeldOut | None, Outputs]]:
        """The outputs of all samples of each set; a client's model is asked for once, for all sets together."""
        evaluator, workers = self.evaluator, self.evaluator.workers
        samples = [evaluator.samples(split, held_out) for held_out in wanted]
        who = [owners_of(evaluator, split, held_out) for held_out in wanted]
        sizes = [len(inputs) for inputs, _ in samples]
        if self._own:
            inputs, whose = torch.cat([inputs for inputs, _ in samples]), np.concatenate(who)
            values = torch.zeros(len(inputs), evaluator.data.outputs, dtype=torch.float64)
            for models, of, places in self._served.of_owners(state, t, whose):
                rows = [np.concatenate([places[c] for c in np.flatnonzero(of == m)]) for m in np.unique(of)]
                chosen = [(models[0][m], models[1][m]) for m in np.unique(of)]
                parts = [inputs[torch.from_numpy(some).to(inputs.device)] for some in rows]
                for some, found in zip(rows, predict_each(workers, chosen, parts, evaluator.batch), strict=True):
                    values[torch.from_numpy(some)] = found
        else:
            each = [predict(workers, state.w, state.b, inputs, evaluator.batch) for inputs, _ in samples]
            values = torch.cat(each)
        exact = torch.int64 if evaluator.data.task == "classification" else torch.float64
        told = (labels.to("cpu", exact) for _, labels in samples)
        outputs = map(Outputs, torch.split(values, sizes), told, who)
        return list(zip(wanted, outputs, strict=True))
