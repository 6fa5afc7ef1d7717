"""Rows of a cohort in training: the local step that all executors of traced programs share."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fedtide.engine.gradient import Gradient
from fedtide.engine.local import Cohort, Direction, Update, accumulate, rows_of


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
        """One local step on one batch; returns the mean loss before the step, [] or [c]."""
        tensors = (self._weights, self._references, self._constants)
        batch = (inputs, labels, keep, key, self.counts, self._terms, *tensors)
        if self.cohort.direction is not None:
            return self._own_direction(self.cohort.direction, batch)
        gradients, value = self.gradient(self._w_views, *batch)
        if self.update.direct:
            self.update.step_by(gradients, self._w_views, self.w)
        else:
            self.update.seed(self._g)
            accumulate(self._g_views, gradients, 1.0, 1.0)
            self.update.step(self.w, self._g)
        return value

    def _own_direction(self, direction: Direction, batch: Any) -> Tensor:
        """A step along the algorithm's own direction; returns the loss of the first gradient it takes."""
        values: list[Tensor] = []

        def loss_gradient(at: Tensor) -> Tensor:
            gradients, value = self.gradient(self._views(at.expand_as(self.w)), *batch)
            values.append(value)
            result = torch.zeros_like(self.w)
            accumulate(self._views(result), gradients, 1.0, 1.0)
            return result

        self._g.copy_(direction(loss_gradient, self.w.clone(), self.rows))
        self.update.step(self.w, self._g)
        return values[0]
