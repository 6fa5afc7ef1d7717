"""Synthetic samples that an algorithm makes and trains on: rows after those of the training set."""

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fedtide.core.array_types import Ints
from fedtide.federation.types import Chosen, Feature, Memory, Parts, RoundContext
from fedtide.training.engine.flat import Layout
from fedtide.world.dataset import Dataset
from fedtide.world.timeline import Timeline


class SyntheticSamples(Feature):
    """The last rows of a run's training set, after its own samples, are those of the state in use.

    They are part of what the algorithm keeps (``synthetic_inputs`` and ``synthetic_labels`` in ``extra``): a resumed run gets
    them back, and rounds on a scratch state have their own.
    """

    name = "synthetic"

    def __init__(self, per_shard: int) -> None:
        self.per_shard = per_shard
        self._data: Dataset
        self._own: int

    def capacity(self, timeline: Timeline) -> int:
        """Largest number of synthetic samples, if clients make at most ``per_shard`` for every shard they hold."""
        pairs = [np.stack([item.clients, item.shards]) for item in timeline.assignments]
        return self.per_shard * len(np.unique(np.concatenate(pairs, axis=1), axis=1).T)

    def refuses(self, chosen: Chosen, timeline: Timeline, data: Dataset) -> str | None:
        if data.kind == "text":
            return (
                f"algorithm {chosen.settings.algorithm.name} generates synthetic samples, which is not supported "
                f"for text (data {data.name})"
            )
        return None

    def memory(self, chosen: Chosen, timeline: Timeline, layout: Layout) -> Memory:
        return Memory(samples=self.capacity(timeline))

    def bind(self, parts: Parts) -> None:
        self._data, self._own = parts.data, parts.data.size("train") - self.capacity(parts.timeline)

    def before(self, r: RoundContext) -> None:
        if (inputs := r.state.extra.get("synthetic_inputs")) is not None:
            self._data.write(self._own, inputs, r.state.extra["synthetic_labels"])

    def inputs(self, unit: Tensor) -> Tensor:
        """Model inputs for points [n, ...] of the unit cube, scaled to the range of the data."""
        if self._data.mean or self._data.read("train", slice(0))[0].dtype == torch.uint8:
            return self._data.normalize(unit)
        return torch.lerp(*self._range, unit)

    @cached_property
    def _range(self) -> tuple[Tensor, Tensor]:
        return torch.aminmax(self._data.read("train", slice(self._own))[0])

    def add(self, extra: dict[str, Tensor], unit: Tensor, labels: Tensor) -> Ints:
        """Append points ``unit`` [m, ...] of the unit cube with int64 ``labels`` [m]; returns their indices.

        ``extra`` is that of the round, whose samples the training set already ends with.
        """
        none = self._data.read("train", slice(0))
        pixels = (unit * self._data.scale).round() if none[0].dtype == torch.uint8 else self.inputs(unit)
        fresh = pixels.to(none[0]), labels.to(none[1].device)
        known = extra.get("synthetic_inputs", none[0]), extra.get("synthetic_labels", none[1])
        first = self._own + len(known[1])
        extra["synthetic_inputs"], extra["synthetic_labels"] = (
            torch.cat(pair) for pair in zip(known, fresh, strict=True)
        )
        self._data.write(first, *fresh)
        return np.arange(first, first + len(labels), dtype=np.int64)
