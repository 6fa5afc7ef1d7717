"""Rows of a cohort in training: the local step that all executors of traced programs share."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from fedtide.training.engine.gradient import Gradient
from fedtide.training.engine.local import Cohort, Direction, GradientAt, NoStep, Term, Update, accumulate, rows_of
from fedtide.training.engine.plan import batches_of
from fedtide.training.programs.program import Gradients

Value = TypeVar("Value")


class Samples(NamedTuple):
    """The samples of a local step or of one of its batches.

    Attributes:
        real: which samples are no padding; None: all. key: of dropout.
        places: of the samples among those that the reference models have seen; None: these models see the batch.
    """

    inputs: Tensor
    labels: Tensor
    real: Tensor | None
    key: Tensor
    places: Tensor | None = None


class Rows:
    """Trains rows [c, d] of a cohort matrix in place; with an unbatched gradient one row, without a leading dimension."""

    def __init__(self, cohort: Cohort, rows: slice, gradient: Gradient) -> None:
        self.rows, self.gradient, self._direction, self._batch = rows, gradient, cohort.direction, cohort.plan.batch
        self.w, self.update = cohort.W[rows], Update(cohort, rows, gradient.task.local)
        trains = cohort.trains
        self._covered = None if trains is None else gradient.layout.whole(trains)
        self._direct = self.update.direct and (trains is None or self._covered is not None)
        place = rows if gradient.batched else rows.start
        self.counts = cohort.label_counts[place]
        terms = [term for term in cohort.terms if gradient.batched or not self._is_off(term.weight)]
        self._weights = [self._number(self._cut(term.weight)) for term in terms]
        self._vectors = [self._cut(vector) for term in terms for vector in term.references.values()]
        self._constants: list[Tensor] = []
        for term in terms:
            self._constants += [value[place] for value in term.constants.values()]
            self._constants += map(self._shared, term.tensors.values())
        self._terms = list(map(_without_tensors, terms))
        self._prepare()

    def _prepare(self) -> None:
        """Views of the tensors, and room for gradients."""
        self._g = torch.empty_like(self.w)
        self._w_views, self._g_views = self._views(self.w), self._views(self._g)
        self._references = [view for vector in self._vectors for view in self.gradient.layout.views(vector)]
        # For an own direction: the gradients of a step, and the last other point, each with its views.
        self._taken: list[tuple[Tensor, list[Tensor]]] = []
        self._elsewhere: tuple[Tensor, list[Tensor]] | None = None
        self._seen: list[Tensor] = []

    def values(self) -> list[Tensor | float | None]:
        """What steps read and write besides their samples: of rows of the same ``form`` in the same order."""
        return [self.w, *self.update.values(), self.counts, *self._weights, *self._vectors, *self._constants]

    @property
    def form(self) -> Hashable:
        """What else a step depends on."""
        terms = (
            (term.loss, *map(tuple, (term.references, term.constants, term.tensors)), term.replaces)
            for term in self._terms
        )
        covered = None if self._covered is None else tuple(self._covered)
        return self.gradient.batched, self._direct, covered, self._batch, tuple(terms)

    def copied(self, copy_of: Callable[[Any], Any]) -> Rows:
        """The same rows with copies of :meth:`values`."""
        other = copy.copy(self)
        other.w, other.update, other.counts = copy_of(self.w), self.update.copied(copy_of), copy_of(self.counts)
        other._weights, other._vectors, other._constants = (
            list(map(copy_of, values)) for values in (self._weights, self._vectors, self._constants)
        )
        other._prepare()
        return other

    def _views(self, matrix: Tensor) -> list[Tensor]:
        return self.gradient.layout.views(matrix if self.gradient.batched else matrix[0])

    def _shared(self, value: Tensor) -> Tensor:
        """A tensor shared by all clients, in the shape that the gradient takes."""
        return value.expand(len(self.w), *value.shape) if self.gradient.batched else value

    def _is_off(self, weight: Any) -> bool:
        """Whether a term's weight is known to be 0 for the one row; on a GPU it would be waited for."""
        own = self._cut(weight)
        return not (isinstance(own, Tensor) and not own.is_cpu) and bool(own == 0)

    def _number(self, value: Any) -> Tensor:
        """A number as a tensor of the rows' type, made on their device."""
        if isinstance(value, Tensor):
            return value.to(self.w)
        return torch.full((), value, dtype=self.w.dtype, device=self.w.device)

    def _cut(self, value: Any) -> Any:
        """The rows of a vector [d] or [C, d], a number or a column [C, 1], in the shape that the gradient takes."""
        part = rows_of(value, self.rows)
        count, vector = len(self.w), isinstance(part, Tensor) and part.shape[-1:] == self.w.shape[-1:]
        if not self.gradient.batched:
            return part.reshape(-1) if vector else (part.reshape(()) if isinstance(part, Tensor) else part)
        if vector:
            return part.expand(count, -1)
        return self._number(part).reshape(-1).expand(count)

    def look_ahead(self, samples: Tensor) -> Tensor | None:
        """Pass all samples of the one row through the reference models, if they are seen often enough for that to be faster.

        ``samples`` [n] are positions of the batches to come. Returns the places [n] of these samples, or None.
        """
        if not self._references:
            return None
        found: tuple[Tensor, Tensor] = torch.unique(samples, return_inverse=True)
        distinct, places = found
        models, count = self.gradient.references, len(self._w_views)
        if not models.worthwhile(len(samples), len(distinct)):
            return None
        parameters = [self._references[start : start + count] for start in range(0, len(self._references), count)]
        self._seen = models.outputs(parameters, distinct)
        return places

    def step(
        self, inputs: Tensor, labels: Tensor, keep: Tensor | None, key: Tensor, places: Tensor | None = None
    ) -> Tensor:
        """One local step on some samples; returns their mean loss before the step, [] or [c]."""
        samples = Samples(inputs, labels, keep, key, places)
        if self._direction is not None:
            return self._own_direction(self._direction, samples)
        return self._descend(self._w_views, None, samples)

    def _descend(self, at: list[Tensor], minus: list[Tensor] | None, samples: Samples) -> Tensor:
        """A step along the gradient at one point, minus that at another one; returns the loss at the first."""
        if self._direct and len(batches_of(self._width(samples.labels), self._batch)) == 1:
            gradients, value = self._of_batch(at, samples)
            others = None if minus is None else self._trained(self._of_batch(minus, samples)[0])
            self.update.step_by(self._trained(gradients), self._trained(self._w_views), self.w, others)
            return value
        if self.update.seeded:
            self.update.seed(self._g)
        value = self._collect(at, self._g_views, float(self.update.seeded), samples)
        if minus is not None:
            other = torch.empty_like(self.w)
            self._collect(minus, self._views(other), 0.0, samples)
            self._g.sub_(other)
        self.update.step(self.w, self._g)
        return value

    def _trained(self, values: list[Value]) -> list[Value]:
        if self._covered is None:
            return values
        return [value for value, trained in zip(values, self._covered, strict=True) if trained]

    def _width(self, labels: Tensor) -> int:
        """Samples of a local step of one client."""
        return labels.shape[1 if self.gradient.batched else 0]

    def _of_batch(self, at: list[Tensor], batch: Samples) -> tuple[Gradients, Tensor]:
        inputs, labels, real, key, places = batch
        references = self._references
        if places is not None:
            references = [values.index_select(0, places) for values in self._seen]
        given = (self.counts, self._terms, self._weights, references, self._constants)
        return self.gradient(at, inputs, labels, real, key, *given, known=places is not None)

    def _collect(self, at: list[Tensor], into: list[Tensor], keep: float, samples: Samples) -> Tensor:
        """``into <- keep * into + gradient`` of the samples' mean loss, batch by batch; returns that loss."""
        inputs, labels, real, key, places = samples
        batches = batches_of(self._width(labels), self._batch)
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
            seen = None if places is None else places[cut]
            batch = Samples(inputs[cut].contiguous(), labels[cut], kept, key + apart, seen)
            gradients, value = self._of_batch(at, batch)
            share = counted[cut].sum(-1) / counted.sum(-1)  # a short batch counts less
            own = torch.empty_like(self.w)
            accumulate(self._views(own), gradients, 0.0, 1.0)
            for target, gradient in zip(into, self._views(own.mul_(share.reshape(-1, 1))), strict=True):
                target.add_(gradient)
            total = total + share * value
        return total

    def _own_direction(self, direction: Direction, samples: Samples) -> Tensor:
        """A step along the algorithm's own direction, if any.

        Returns the loss of the first gradient it takes, or at the parameters, where the direction is the gradient there.
        """
        values: list[Tensor] = []
        here = self.w.data  # counts changes of its own, not those of other rows of the matrix

        def loss_gradient(at: Tensor) -> Tensor:
            result, views = self._result(len(values))
            values.append(self._collect(self._at(at, here), views, 0.0, samples))
            return result

        found = direction(loss_gradient, here, self.rows)
        if isinstance(found, NoStep):
            return values[0]
        if isinstance(found, GradientAt):
            minus = None if found.minus is None else self._at(found.minus, here)
            value = self._descend(self._at(found.point, here), minus, samples)
            return values[0] if values and found.point is not here else value
        # The step overwrites its direction: a gradient may be, another tensor could be one that the algorithm keeps.
        own = any(found is result for result, _ in self._taken)
        self.update.step(self.w, found if own else self._g.copy_(found))
        return values[0]

    def _result(self, number: int) -> tuple[Tensor, list[Tensor]]:
        """Room for the gradient [c, d] that a step takes as its ``number``-th, and its views."""
        while len(self._taken) <= number:
            result = torch.empty_like(self.w)
            self._taken.append((result, self._views(result)))
        return self._taken[number]

    def _at(self, point: Tensor, here: Tensor) -> list[Tensor]:
        """Views of a point [c, d] or [d]; those of points that steps use again are kept."""
        if point is here:
            return self._w_views
        for result, views in self._taken:
            if point is result:
                return views
        if self._elsewhere is None or self._elsewhere[0] is not point:
            self._elsewhere = (point, self._views(point.expand_as(self.w)))
        return self._elsewhere[1]


def _without_tensors(term: Term) -> Term:
    """What the gradient is told of a term; its tensors are given apart."""

    def names(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return dict.fromkeys(tensors, torch.empty(0))

    return replace(
        term,
        weight=1.0,
        references=names(term.references),
        buffers={},
        constants=names(term.constants),
        tensors=names(term.tensors),
    )
