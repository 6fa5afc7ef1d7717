"""Scores of models on a run's held-out samples."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedtide.core.array_types import Bools, Floats, Ints
from fedtide.core.randomness import Randomness
from fedtide.settings.groups.evaluation import EvaluationSettings
from fedtide.training.engine.passes.evaluation import Scores, evaluate, evaluate_each, evaluate_seen, predict
from fedtide.training.engine.passes.metrics import Fit, fit, measure
from fedtide.training.resources.workers import Workers
from fedtide.world.dataset import Dataset, Split
from fedtide.world.timeline import HeldOut, Timeline

ModelValues = tuple[Tensor, Tensor]
"""Parameters [d] and floating buffers [q] of a model, or [C, d] and [C, q] of an ensemble."""


@dataclass
class Evaluator:
    """Evaluates models on training samples and the splits ``test`` and ``validation``, held out of test and training set."""

    settings: EvaluationSettings
    timeline: Timeline
    data: Dataset
    workers: Workers
    randomness: Randomness

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
        mixture: Floats | None = None,
    ) -> Scores | Fit:
        """Scores of a model on held-out samples, by default all of a split: per class, or the fit of a task without classes.

        With a ``mixture`` of concepts [C], on all of the split as clients see it, each concept with its share.
        """
        if mixture is not None:
            shared = np.flatnonzero(mixture).tolist()
            found = self.by_concept(model, split, shared, view)
            return Scores.mixed([(float(mixture[number]), found[number]) for number in shared])
        return self.scores_on(model, *self.samples(split, held_out), view)

    def scores_on(self, model: ModelValues, inputs: Tensor, labels: Tensor, view: Bools | None = None) -> Scores | Fit:
        """The same on any resident samples."""
        if self.data.task != "classification":
            return fit(self.workers, *model, inputs, labels, self.batch)
        return evaluate(self.workers, *model, inputs, labels, self.batch, view)

    def by_concept(
        self, model: ModelValues, split: str, concepts: Sequence[int], view: Bools | None = None
    ) -> dict[int, Scores]:
        """Scores per class on all of a split, as seen under each concept; those that see the same inputs share a pass."""
        found: dict[int, Scores] = {}
        for numbers in self._alike(concepts):
            seen = [self.under(split, number) for number in numbers]
            inputs = self.data.read(part_of(split), self.on_device(seen[0]))[0]
            labels = [self.on_device(self.data.classes(positions, part_of(split))) for positions in seen]
            pairs = [(own, own) for own in labels]
            scores = evaluate_seen(self.workers, *model, inputs, pairs, self.data.num_classes, self.batch, view)
            found |= zip(numbers, scores, strict=True)
        return found

    def _alike(self, concepts: Sequence[int]) -> list[list[int]]:
        """The concepts, those that see the same inputs together."""
        groups: dict[Any, list[int]] = {}
        for number in concepts:
            groups.setdefault(self.timeline.concepts.maps[number].moved, []).append(number)
        return list(groups.values())

    def under(self, split: str, concept: int) -> Ints:
        """Positions of all of a split as seen under a concept."""
        known = self.timeline.concepts
        return self.positions(split) + concept * (known.test if split == "test" else known.train)

    def each(self, models: ModelValues, of: Sequence[int], tested: list[Ints]) -> list[Scores]:
        """Scores of each client's own model on its samples of the first split: per class, under drift per concept and class.

        ``models`` are parameters [M, d] and floating buffers [M, q], ``of`` the model of each client.
        """
        part, concepts = part_of(self.settings.splits[0]), self.timeline.concepts
        sizes = (len(concepts.maps), concepts.test if part == "test" else concepts.train) if concepts else None
        return evaluate_each(self.workers, models, of, part, tested, self.batch, sizes)

    def metrics(
        self,
        model: ModelValues,
        split: str,
        held_out: HeldOut | None,
        mixture: Floats | None = None,
        view: Bools | None = None,
    ) -> dict[str, float | None]:
        """The metrics asked for, by name, over samples of the labels in ``view``, bool [L]; by default of all.

        With a ``mixture`` of concepts the means over the concepts, each with its share.
        """
        names = self.settings.metrics
        if not names:
            return {}
        if mixture is None:
            inputs, labels = self.samples(split, held_out)
            return self._measured(predict(self.workers, *model, inputs, self.batch), labels.cpu(), view)
        total: dict[str, float | None] = dict.fromkeys(names, 0.0)
        for numbers in self._alike(np.flatnonzero(mixture).tolist()):
            inputs = self.data.read(part_of(split), self.on_device(self.under(split, numbers[0])))[0]
            logits = predict(self.workers, *model, inputs, self.batch)
            for number in numbers:
                labels = torch.from_numpy(self.data.classes(self.under(split, number), part_of(split)))
                found = self._measured(logits, labels, view)
                share = float(mixture[number])
                for name, value in found.items():
                    cumulative = total[name]
                    total[name] = None if value is None or cumulative is None else cumulative + share * value
        return total

    def _measured(self, outputs: Tensor, labels: Tensor, view: Bools | None) -> dict[str, float | None]:
        if view is not None and not view.all():
            seen = torch.from_numpy(view)[labels]
            outputs, labels = outputs[seen], labels[seen]
        return measure(self.settings.metrics, outputs, labels)

    def samples(self, split: str, held_out: HeldOut | None = None) -> tuple[Tensor, Tensor]:
        """Inputs and labels of held-out samples, those in the test set first; arguments as in :meth:`scores`."""
        if split == "test" and held_out is None:
            return self.data.read("test", slice(self._tested))
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
        return np.arange(self._tested) if split == "test" else self.timeline.validation

    @property
    def _tested(self) -> int:
        """Number of test samples."""
        return self.timeline.concepts.test or self.data.size("test")

    def count(self, split: str, held_out: HeldOut) -> int:
        """Number of held-out samples of :meth:`samples`."""
        return len(self.positions(split, held_out)) + (len(held_out.train) if split == "test" else 0)

    def on_device(self, positions: Ints) -> Tensor:
        """Positions where the data are."""
        return torch.from_numpy(positions).to(self.workers.task.device)


def part_of(split: str) -> Split:
    """The part of the dataset that a split's positions refer to."""
    return "test" if split == "test" else "train"
