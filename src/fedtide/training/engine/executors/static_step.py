"""A local step on buffers that stay where they are, so that its recording holds for all rounds of the same form."""

from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

from fedtide.core.array_types import Ints
from fedtide.training.engine.executors import replay
from fedtide.training.engine.executors.rows import Rows
from fedtide.training.engine.local import Cohort
from fedtide.training.engine.task import Task

_AHEAD = 1 << 22
"""Samples in batches whose positions are laid out together."""


class StaticStep:
    """The step of some lanes, which are advanced together: all rows of a chunk at once, or each row in a stream of its own.

    A round is copied in by :meth:`load`, and back by :meth:`store`. Whatever a step reads is in the buffers or in :func:`form`.
    """

    def __init__(self, task: Task, lanes: Sequence[Rows], cohort: Cohort, rows: slice) -> None:
        clients, device, width = rows.stop - rows.start, task.device, cohort.plan.width
        steps = _capacity(cohort, clients)
        self.task, self.lanes = task, [lane.copied(_copy) for lane in lanes]
        self._indices = torch.zeros(clients, steps, width, dtype=torch.int64, device=device)
        self._keys = torch.zeros(clients, steps, dtype=torch.int64, device=device)
        self._sizes = torch.zeros(clients, steps, dtype=torch.int64, device=device)
        self._columns = torch.arange(width, device=device)
        self._at = torch.zeros(1, dtype=torch.int64, device=device)
        self._losses = torch.zeros(clients, dtype=cohort.losses.dtype, device=device)
        self._none = torch.zeros((), dtype=self._losses.dtype, device=device)
        self._steps = torch.zeros(clients, 1, dtype=torch.int64, device=device)
        self._seen, self._full = range(0), list[bool]()  # the steps laid out in the buffers, from which positions count
        self._steps_of: dict[tuple[bool, bool], replay.Replay] = {}
        self._loaded: object = None

    def load(self, lanes: Sequence[Rows], cohort: Cohort, rows: slice, ends: Ints, at: int) -> None:
        """Copy rows of a cohort that have taken ``at`` steps of ``ends``; of those copied last only what may have changed."""
        again, self._loaded = self._loaded is ends, ends  # an array per chunk and round
        self._of = cohort.plan, rows, ends
        for own, given in zip(self.lanes, lanes, strict=True):
            if again:
                _copy_all(_written(own), _written(given))
            else:
                _copy_all(own.values(), given.values())
        self._losses.copy_(cohort.losses[rows])
        if not again or at not in self._seen:
            self._lay_out(at)
        self._at.fill_(at - self._seen.start)

    def _lay_out(self, at: int) -> None:
        """Copy the batches of the next steps."""
        plan, rows, ends = self._of
        self._seen = range(at, min(at + self._indices.shape[1], plan.longest))
        window, taken = plan.window(rows, self._seen), slice(len(self._seen))
        self._full = window.full
        self._indices[:, taken].copy_(window.indices)
        self._keys[:, taken].copy_(window.keys)
        self._sizes[:, taken].copy_(window.sizes)
        self._at.zero_()
        _hand_over(self._steps, torch.from_numpy(ends - at).unsqueeze(-1))

    def ended(self, rows: Sequence[int]) -> None:
        """Leave some rows as they are from now on."""
        self._steps[rows] = 0

    def store(self, lanes: Sequence[Rows], cohort: Cohort, rows: slice) -> None:
        """Copy parameters, moments and losses back."""
        for own, given in zip(self.lanes, lanes, strict=True):
            _copy_all(_written(given), _written(own))
        cohort.losses[rows].copy_(self._losses)

    def step(self, step: int, uneven: bool) -> None:
        """The next step, of some number; ``uneven``: some row has ended, and stays as it is."""
        if step not in self._seen:
            self._lay_out(step)
        kind = not self._full[step - self._seen.start], uneven  # whether some batch is short
        if kind not in self._steps_of:
            self._steps_of[kind] = replay.Replay(lambda: self._step(*kind), self.task.device)
        self._steps_of[kind]()

    def _step(self, padded: bool, uneven: bool) -> None:
        indices, keys = (values.index_select(1, self._at).squeeze(1) for values in (self._indices, self._keys))
        # A padded batch keeps the full width: a client's sums must not depend on the others in its chunk.
        keep = self._columns < self._sizes.index_select(1, self._at) if padded else None
        written = [values for lane in self.lanes for values in _written(lane)]
        before = [values.clone() for values in written] if uneven else []
        value = self._descend(*self.task.batch(indices, keys), keep, keys)
        running = self._steps > self._at
        if uneven:
            bounds = torch.split(running, [len(lane.w) for lane in self.lanes])
            each = [own for own, lane in zip(bounds, self.lanes, strict=True) for _ in _written(lane)]
            for after, old, own in zip(written, before, each, strict=True):
                after.copy_(torch.where(own, after, old))
        self._losses += torch.where(running[:, 0], value, self._none)
        self._at += 1

    def _descend(self, inputs: Tensor, labels: Tensor, keep: Tensor | None, keys: Tensor) -> Tensor:
        """A step of all lanes; the rows' losses [c] before it."""
        if len(self.lanes) == 1 and self.lanes[0].gradient.batched:
            return self.lanes[0].step(inputs, labels, keep, keys)
        values = torch.empty_like(self._losses)

        def one(row: int, lane: Rows) -> None:
            own = None if keep is None else keep[row]
            values[row].copy_(lane.step(inputs[row], labels[row], own, keys[row]))

        works = [lambda row=row, lane=lane: one(row, lane) for row, lane in enumerate(self.lanes)]
        replay.side_by_side(works, self.task.device)
        return values


def form(lanes: Sequence[Rows], cohort: Cohort) -> Hashable:
    """What a recorded step depends on besides its buffers."""
    values = tuple(tuple(map(_form, lane.values())) for lane in lanes)
    room = _capacity(cohort, sum(len(lane.w) for lane in lanes))
    return room, cohort.plan.width, values, tuple(lane.form for lane in lanes)


def _capacity(cohort: Cohort, clients: int) -> int:
    """Local steps that there is room for: all, where they are few, and a power of two, so that few forms occur."""
    most = max(1, _AHEAD // (clients * cohort.plan.width))
    return 1 << (min(int(cohort.plan.planned.max()), most) - 1).bit_length()


def _written(lane: Rows) -> list[Tensor]:
    return [lane.w, *lane.update.moments.values()]


def _form(value: Any) -> Hashable:
    return (value.shape, value.stride(), value.dtype) if isinstance(value, Tensor) else value


def _stored(value: Tensor) -> Tensor:
    """The part of an expanded tensor that lies in memory."""
    for dim, (size, stride) in enumerate(zip(value.shape, value.stride(), strict=True)):
        if size > 1 and stride == 0:
            value = value.narrow(dim, 0, 1)
    return value


def _copy(value: Any) -> Any:
    return _stored(value).clone().expand(value.shape) if isinstance(value, Tensor) else value


def _hand_over(into: Tensor, value: Tensor) -> None:
    """Copy from the host without waiting for the GPU."""
    into.copy_(value.pin_memory() if into.is_cuda else value, non_blocking=True)


def _copy_all(own: Sequence[Any], given: Sequence[Any]) -> None:
    for into, value in zip(own, given, strict=True):
        if isinstance(into, Tensor):
            _stored(into).copy_(_stored(value))
