"""Samples that an algorithm makes up and trains on: rows behind those of the training set."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtide.data.dataset import Dataset
from fedtide.scenarios.timeline import Timeline

Ints = NDArray[np.int64]


def room(timeline: Timeline, per_visit: int) -> int:
    """Samples there will be at most, if clients make up so many of every subset they meet."""
    if per_visit == 0:
        return 0
    places = [np.stack([item.clients, item.shards]) for item in timeline.assignments]
    return per_visit * len(np.unique(np.concatenate(places, axis=1), axis=1).T)


class Invented:
    """The last rows of a run's training set, kept in step with the state of whoever plays.

    They are part of the state (``inputs`` and ``labels`` of ``invented`` in its ``extra``): a resumed run has them again, and
    rounds on a scratch state have their own.

    Args:
        data: with room behind its ``own`` samples.
        labels: of all training samples, on the CPU.
        own: number of real samples.
    """

    def __init__(self, data: Dataset, labels: Ints, own: int) -> None:
        self._data, self._labels, self._own = data, labels, own
        self._shown: Tensor | None = None

    def inputs(self, unit: Tensor) -> Tensor:
        """Model inputs for points [n, ...] of the unit cube, which stands for the range of the data."""
        if self._data.mean or self._data.train_inputs.dtype == torch.uint8:
            return self._data.normalise(unit)
        return torch.lerp(*self._range, unit)

    @cached_property
    def _range(self) -> tuple[Tensor, Tensor]:
        return torch.aminmax(self._data.train_inputs[: self._own])

    def add(self, extra: dict[str, Tensor], unit: Tensor, labels: Tensor) -> Ints:
        """Take over points ``unit`` [m, ...] of the unit cube with int64 ``labels`` [m]; returns their positions."""
        self.show(extra)
        inputs, device = self._data.train_inputs, self._data.train_labels.device
        pixels = (unit * self._data.scale).round() if inputs.dtype == torch.uint8 else self.inputs(unit)
        fresh = pixels.to(inputs), labels.to(device)
        known = extra.get("invented_inputs", inputs[:0]), extra.get("invented_labels", self._data.train_labels[:0])
        first = self._own + len(known[1])
        extra["invented_inputs"], extra["invented_labels"] = (
            torch.cat(pair) for pair in zip(known, fresh, strict=True)
        )
        self._write(first, *fresh)
        self._shown = extra["invented_inputs"]
        return np.arange(first, first + len(labels), dtype=np.int64)

    def show(self, extra: dict[str, Tensor]) -> None:
        """Make the rows those of a state."""
        inputs = extra.get("invented_inputs")
        if inputs is not None and inputs is not self._shown:
            self._write(self._own, inputs, extra["invented_labels"])
            self._shown = inputs

    def _write(self, first: int, inputs: Tensor, labels: Tensor) -> None:
        rows = slice(first, first + len(labels))
        self._data.train_inputs[rows], self._data.train_labels[rows] = inputs, labels
        self._labels[rows] = labels.cpu().numpy()
