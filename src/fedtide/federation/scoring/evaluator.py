"""Scores of models on a run's held-out samples."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fedtide.core.array_types import Bools, Ints
from fedtide.engine.passes.evaluation import Scores, evaluate, predict
from fedtide.engine.passes.fit import Fit, fit
from fedtide.engine.passes.metrics import measure
from fedtide.engine.workers import Workers
from fedtide.settings.run import EvaluationSettings
from fedtide.world.dataset import Dataset, Split
from fedtide.world.timeline import HeldOut, Timeline

ModelValues = tuple[Tensor, Tensor]
"""Parameters [d] and floating buffers [q] of a model, or [C, d] and [C, q] of an ensemble."""


@dataclass(frozen=True)
class Evaluator:
    """Evaluates models on training samples and the splits ``test`` and ``validation``, held out of test and training set."""

    settings: EvaluationSettings
    timeline: Timeline
    data: Dataset
    workers: Workers

    @property
    def batch(self) -> int:
        return self.settings.batch_size

    @cached_property
    def has_views(self) -> bool:
        """Whether some labels are not evaluated in some session."""
        return not self.timeline.label_views.all()

    def scores(
        self,
        model: ModelValues,
        split: str = "test",
        view: Bools | None = None,
        held_out: HeldOut | None = None,
    ) -> Scores | Fit:
        """Scores of a model on held-out samples, by default all of a split: per class, or the fit of a task without classes."""
        return self.scores_on(model, *self.samples(split, held_out), view)

    def scores_on(self, model: ModelValues, inputs: Tensor, labels: Tensor, view: Bools | None = None) -> Scores | Fit:
        """The same on any resident samples."""
        if self.data.task != "classification":
            return fit(self.workers, *model, inputs, labels, self.batch)
        return evaluate(self.workers, *model, inputs, labels, self.batch, view)

    def metrics(self, model: ModelValues, split: str, held_out: HeldOut | None) -> dict[str, float | None]:
        """The metrics asked for, by name; samples of labels that a session does not evaluate count as well."""
        if not self.settings.metrics:
            return {}
        inputs, labels = self.samples(split, held_out)
        logits = predict(self.workers, *model, inputs, self.batch)
        return measure(self.settings.metrics, logits, labels.cpu())

    def samples(self, split: str, held_out: HeldOut | None = None) -> tuple[Tensor, Tensor]:
        """Inputs and labels of held-out samples, those in the test set first; arguments as in :meth:`scores`."""
        if split == "test" and held_out is None:
            return self.data.read("test", slice(None))
        found = self.data.read(part_of(split), self.on_device(self.positions(split, held_out)))
        if split != "test" or held_out is None or not len(held_out.train):
            return found
        inputs, labels = self.data.read("train", self.on_device(held_out.train))
        return torch.cat([found[0], inputs]), torch.cat([found[1], labels])

    def training_samples(self, shards: list[Ints]) -> tuple[Tensor, Tensor]:
        """Inputs and labels of the training samples in some shards, shard by shard."""
        return self.data.read("train", self.on_device(np.concatenate(shards)))

    def positions(self, split: str, held_out: HeldOut | None = None) -> Ints:
        """Positions of held-out samples in a split's part of the dataset; arguments as in :meth:`scores`."""
        if held_out is not None:
            return held_out.test if split == "test" else held_out.validation
        return np.arange(self.data.size("test")) if split == "test" else self.timeline.validation

    def count(self, split: str, held_out: HeldOut) -> int:
        """Number of held-out samples of :meth:`samples`."""
        return len(self.positions(split, held_out)) + (len(held_out.train) if split == "test" else 0)

    def on_device(self, positions: Ints) -> Tensor:
        """Positions where the data are."""
        return torch.from_numpy(positions).to(self.workers.task.device)


def part_of(split: str) -> Split:
    """The part of the dataset that a split's positions refer to."""
    return "test" if split == "test" else "train"
