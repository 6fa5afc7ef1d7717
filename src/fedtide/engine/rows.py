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
        self._references = [view for vector in vectors for view in gradient.layout.views(vector)]
        place = rows if gradient.batched else rows.start
        self._constants: list[Tensor] = []
        for term in self._terms:
            self._constants += [value[place] for value in term.constants.values()]
            self._constants += map(self._shared, term.tensors.values())

    def _views(self, matrix: Tensor) -> list[Tensor]:
        return self.gradient.layout.views(matrix if self.gradient.batched else matrix[0])

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
        if self.update.seeded:
            self.update.seed(self._g)
        value = self._collect(self._w_views, self._g_views, float(self.update.seeded), samples)
        self.update.step(self.w, self._g)
        return value

    def _width(self, labels: Tensor) -> int:
        """Samples of a local step of one client."""
        return labels.shape[1 if self.gradient.batched else 0]

    def _of_batch(self, at: list[Tensor], batch: Samples) -> tuple[Gradients, Tensor]:
        """Gradients and mean loss of one batch."""
        return self.gradient(at, *batch, self.counts, self._terms, self._weights, self._references, self._constants)

    def _collect(self, at: list[Tensor], into: list[Tensor], keep: float, samples: Samples) -> Tensor:
        """``into <- keep * into + gradient`` of the samples' mean loss, batch by batch; returns that loss."""
        inputs, labels, real, key = samples
        batches = self.cohort.plan.batches(self._width(labels))
        if len(batches) == 1:
            gradients, value = self._of_batch(at, samples)
            accumulate(into, gradients, keep, 1.0)
            return value
        for target in into:
            target.mul_(keep) if keep else target.zero_()
        shape = labels.shape[: 2 if self.gradient.batched else 1]
        counted = torch.ones(shape, dtype=self.w.dtype, device=self.w.device) if real is None else real.to(self.w)
        total = torch.zeros((), dtype=self.w.dtype, device=self.w.device)
        for part, apart in batches:
            cut = (slice(None), part) if self.gradient.batched else (part,)
            kept = None if real is None else real[cut]
            gradients, value = self._of_batch(at, (inputs[cut].contiguous(), labels[cut], kept, key + apart))
            share = counted[cut].sum(-1) / counted.sum(-1)  # a short batch counts less
            own = torch.empty_like(self.w)
            accumulate(self._views(own), gradients, 0.0, 1.0)
            for target, gradient in zip(into, self._views(own.mul_(share.reshape(-1, 1))), strict=True):
                target.add_(gradient)
            total = total + share * value
        return total

    def _own_direction(self, direction: Direction, samples: Samples) -> Tensor:
        """A step along the algorithm's own direction; returns the loss of the first gradient it takes."""
        values: list[Tensor] = []
        taken: list[Tensor] = []
        here = self.w.data  # counts changes of its own, not those of other rows of the matrix

        def loss_gradient(at: Tensor) -> Tensor:
            result = torch.empty_like(self.w)
            point = self._w_views if at is here else self._views(at.expand_as(self.w))
            values.append(self._collect(point, self._views(result), 0.0, samples))
            taken.append(result)
            return result

        found = direction(loss_gradient, here, self.rows)
        # The step overwrites its direction: a gradient may be, another tensor could be one that the algorithm keeps.
        self.update.step(self.w, found if any(found is result for result in taken) else self._g.copy_(found))
        return values[0]
