"""Rows of a cohort in training: the local step that all executors of traced programs share."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fedtide.engine.gradient import Gradient
from fedtide.engine.local import Cohort, Direction, Update, accumulate, rows_of
from fedtide.engine.program import Gradients

Samples = tuple[Tensor, Tensor, Tensor | None, Tensor]
"""Inputs and labels of a local step or of one of its batches, which of them are real (None: all), and the key."""


class Rows:
    """Trains rows [c, d] of a cohort matrix in place.

    With an unbatched gradient there is one row, and its parameters have no leading dimension.
    """

    def __init__(self, cohort: Cohort, rows: slice, gradient: Gradient) -> None:
        self.cohort, self.rows, self.gradient = cohort, rows, gradient
        self.update = Update(cohort, rows, gradient.task.local)
        self.w = cohort.W[rows]
        self.counts = cohort.label_counts[rows] if gradient.batched else cohort.label_counts[rows.start]
        self._g = torch.empty_like(self.w)
        self._w_views, self._g_views = self._views(self.w), self._views(self._g)
        off = [not gradient.batched and self._cut(term.weight) == 0 for term in cohort.terms]
        self._terms = [term for term, skip in zip(cohort.terms, off, strict=True) if not skip]
        dtype, device = self.w.dtype, self.w.device
        self._weights = [torch.as_tensor(self._cut(term.weight), dtype=dtype, device=device) for term in self._terms]
        vectors = [self._cut(vector) for term in self._terms for vector in term.references.values()]
        self._references = [slot.view(vector) for vector in vectors for slot in gradient.layout.parameters]
        place = rows if gradient.batched else rows.start
        self._constants: list[Tensor] = []
        for term in self._terms:
            self._constants += [value[place] for value in term.constants.values()]
            self._constants += map(self._shared, term.tensors.values())

    def _views(self, matrix: Tensor) -> list[Tensor]:
        flat = matrix if self.gradient.batched else matrix[0]
        return [slot.view(flat) for slot in self.gradient.layout.parameters]

    def _shared(self, value: Tensor) -> Tensor:
        """A tensor shared by all clients, in the shape that the gradient takes."""
        return value.expand(len(self.w), *value.shape) if self.gradient.batched else value

    def _cut(self, value: Any) -> Any:
        """The rows of a vector [d] or [C, d], a number or a column [C, 1], in the shape that the gradient takes."""
        part = rows_of(value, self.rows)
        count, vector = len(self.w), isinstance(part, Tensor) and part.shape[-1:] == self.w.shape[-1:]
        if not self.gradient.batched:
            return part.reshape(-1) if vector else (part.reshape(()) if isinstance(part, Tensor) else part)
        if vector:
            return part.expand(count, -1)
        return torch.as_tensor(part, dtype=self.w.dtype, device=self.w.device).reshape(-1).expand(count)

    def step(self, inputs: Tensor, labels: Tensor, keep: Tensor | None, key: Tensor) -> Tensor:
        """One local step on some samples; returns their mean loss before the step, [] or [c]."""
        samples: Samples = (inputs, labels, keep, key)
        if self.cohort.direction is not None:
            return self._own_direction(self.cohort.direction, samples)
        if self.update.direct and len(self.cohort.plan.batches(self._width(labels))) == 1:
            gradients, value = self._of_batch(self._w_views, samples)
            self.update.step_by(gradients, self._w_views, self.w)
            return value
        self.update.seed(self._g)
        value = self._collect(self._w_views, self._g_views, samples)
        self.update.step(self.w, self._g)
        return value

    def _width(self, labels: Tensor) -> int:
        """Samples of a local step of one client."""
        return labels.shape[1 if self.gradient.batched else 0]

    def _of_batch(self, at: list[Tensor], batch: Samples) -> tuple[Gradients, Tensor]:
        """Gradients and mean loss of one batch."""
        return self.gradient(at, *batch, self.counts, self._terms, self._weights, self._references, self._constants)

    def _collect(self, at: list[Tensor], into: list[Tensor], samples: Samples) -> Tensor:
        """Add the gradient of the samples' mean loss to ``into``, batch by batch; returns that loss."""
        inputs, labels, keep, key = samples
        batches = self.cohort.plan.batches(self._width(labels))
        if len(batches) == 1:
            gradients, value = self._of_batch(at, samples)
            accumulate(into, gradients, 1.0, 1.0)
            return value
        shape = labels.shape[: 2 if self.gradient.batched else 1]
        real = torch.ones(shape, dtype=self.w.dtype, device=self.w.device) if keep is None else keep.to(self.w)
        total = torch.zeros((), dtype=self.w.dtype, device=self.w.device)
        for part, apart in batches:
            cut = (slice(None), part) if self.gradient.batched else (part,)
            kept = None if keep is None else keep[cut]
            gradients, value = self._of_batch(at, (inputs[cut].contiguous(), labels[cut], kept, key + apart))
            share = real[cut].sum(-1) / real.sum(-1)  # a short batch counts less
            own = torch.zeros_like(self.w)
            accumulate(self._views(own), gradients, 1.0, 1.0)
            for target, gradient in zip(into, self._views(own.mul_(share.reshape(-1, 1))), strict=True):
                target.add_(gradient)
            total = total + share * value
        return total

    def _own_direction(self, direction: Direction, samples: Samples) -> Tensor:
        """A step along the algorithm's own direction; returns the loss of the first gradient it takes."""
        values: list[Tensor] = []

        def loss_gradient(at: Tensor) -> Tensor:
            result = torch.zeros_like(self.w)
            values.append(self._collect(self._views(at.expand_as(self.w)), self._views(result), samples))
            return result

        self._g.copy_(direction(loss_gradient, self.w.clone(), self.rows))
        self.update.step(self.w, self._g)
        return values[0]
