"""Concepts: what a client makes of a sample.

Sample p as seen under concept c is the *virtual position* c n + p of a split with n samples. Shards and held-out sets hold
virtual positions, so that all that keeps positions keeps samples as they were seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from pydantic import TypeAdapter
from torch import Tensor

from fedtide.core.array_types import Floats, Ints
from fedtide.core.errors import SettingsError
from fedtide.world.dataset import Dataset


@dataclass(frozen=True)
class Concept:
    """A map of labels and a map of inputs; by default nothing changes.

    Attributes:
        labels: label y is seen as ``labels[y]``. table: number of the dataset's label table to use instead.
        turns: quarter turns of a picture, counter-clockwise. matrix, shift: a vector x is seen as A x + b.
    """

    labels: tuple[int, ...] | None = None
    table: int | None = None
    turns: int = 0
    matrix: tuple[tuple[float, ...], ...] | None = None
    shift: tuple[float, ...] | None = None

    @property
    def moved(self) -> tuple[Any, ...]:
        """What it does to inputs; equal where two concepts see the same."""
        return self.turns % 4, self.matrix, self.shift

    def inputs(self, stored: Tensor) -> Tensor:
        """Inputs [n, ...] as seen."""
        seen = torch.rot90(stored, self.turns, (-2, -1)) if self.turns % 4 else stored
        if self.matrix is not None:
            seen = seen @ torch.tensor(self.matrix, dtype=torch.float64).to(seen).T
        return seen if self.shift is None else seen + torch.tensor(self.shift, dtype=torch.float64).to(seen)

    def seen(self, labels: Tensor, tables: Tensor | None) -> Tensor:
        """Labels [n] as seen; ``tables`` [K, n] are those of the dataset."""
        if self.table is not None:
            assert tables is not None
            return tables[self.table].to(labels)
        return labels if self.labels is None else torch.tensor(self.labels, device=labels.device)[labels]

    def refuse_unfit(self, data: Dataset) -> None:
        """Refuse what the samples of a dataset cannot be seen under; the message begins with the key."""
        classes, shape = data.num_classes, data.input_shape
        tables = 0 if data.tables is None else len(data.tables[0])
        if self.labels is not None and (len(self.labels) != classes or not set(self.labels) <= set(range(classes))):
            raise SettingsError(
                f"labels = {list(self.labels)}: data {data.name} has {classes} classes; list the new label of each "
                f"of 0 to {classes - 1}"
            )
        if self.table is not None and not 0 <= self.table < tables:
            known = f"tables 0 to {tables - 1}" if tables else "no label tables"
            raise SettingsError(f"table = {self.table}: data {data.name} has {known}")
        if self.turns % 4 and (data.kind != "image" or (self.turns % 2 and shape[-1] != shape[-2])):
            raise SettingsError(
                f"turns = {self.turns} requires square images, but samples of data {data.name} have shape {list(shape)}"
            )
        if self.matrix is None and self.shift is None:
            return
        if data.kind != "vector":
            raise SettingsError(f"matrix and shift require vectors, but data {data.name} is {data.kind}")
        width, rows = shape[0], self.matrix or ()
        if self.matrix is not None and (len(rows) != width or any(len(row) != width for row in rows)):
            raise SettingsError(f"matrix should have {width} rows of {width} numbers, the features of data {data.name}")
        if self.shift is not None and len(self.shift) != width:
            raise SettingsError(f"shift should have {width} numbers, the features of data {data.name}")


class Concepts(NamedTuple):
    """The concepts of a world whose training set has ``train`` samples and whose test set ``test``; number 0 comes first."""

    maps: tuple[Concept, ...] = (Concept(),)
    train: int = 0
    test: int = 0

    def __bool__(self) -> bool:
        """Whether there is more than the data as they are stored."""
        return self.maps != (Concept(),)

    def of(self, positions: Ints) -> Ints:
        """The concept of each virtual position of the training set."""
        return positions // self.train

    def shares(self, positions: Ints) -> Floats:
        """Share of each concept among virtual positions of the training set, [C]; zero without any."""
        counts = np.bincount(self.of(positions), minlength=len(self.maps))
        return counts / max(len(positions), 1)

    def to_json(self) -> dict[str, Any]:
        return {"maps": [asdict(concept) for concept in self.maps], "train": self.train, "test": self.test}

    @staticmethod
    def from_json(values: dict[str, Any]) -> Concepts:
        maps = TypeAdapter(tuple[Concept, ...]).validate_python(values["maps"])
        return Concepts(maps, values["train"], values["test"])


NO_DRIFT = Concepts()


def under(data: Dataset, concepts: Concepts) -> Dataset:
    """The dataset with a sample for every virtual position; inputs are stored again only where a concept moves them."""
    if not concepts:
        return data
    train_tables, test_tables = data.tables or (None, None)
    x, y, rows = _seen(data.train_inputs, data.train_labels, concepts.maps, train_tables)
    test_x, test_y, test_rows = _seen(data.test_inputs, data.test_labels, concepts.maps, test_tables)
    train: dict[str, Any] = {"train_inputs": x, "train_labels": y, "train_rows": rows}
    return replace(data, **train, test_inputs=test_x, test_labels=test_y, test_rows=test_rows, tables=None)


def _seen(
    inputs: Tensor, labels: Tensor, maps: Sequence[Concept], tables: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs and labels of one split under all concepts, and the row of the inputs of each label."""
    size = len(labels)
    rows: list[Tensor] = []
    stored: list[Tensor] = []
    for number, concept in enumerate(maps):
        alike = next((n for n, other in enumerate(maps[:number]) if other.moved == concept.moved), None)
        if alike is None:
            rows.append(torch.arange(size) + sum(map(len, stored)))
            stored.append(concept.inputs(inputs))
        else:
            rows.append(rows[alike])
    seen = torch.cat([concept.seen(labels, tables) for concept in maps])
    return stored[0] if len(stored) == 1 else torch.cat(stored), seen, torch.cat(rows)


def seen_classes(data: Dataset, concepts: Concepts) -> Ints:
    """Classes of all virtual positions of the training set, int64."""
    if not concepts:
        return data.classes(slice(None))
    tables = data.tables and data.tables[0]
    seen: Ints = torch.cat([concept.seen(data.train_labels, tables) for concept in concepts.maps]).numpy()
    return seen
