"""How rows of a table become a network's inputs, and its outputs named predictions: the same in training and afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import Tensor

from fedtide.core.array_types import Bools, Ints
from fedtide.core.errors import SettingsError, nearest
from fedtide.core.plugins import SettingsModel
from fedtide.settings.scores import TaskName
from fedtide.world.adapters.names import as_number, names_in, positions
from fedtide.world.dataset import Scales, restored

if TYPE_CHECKING:
    import pandas as pd

    from fedtide.world.adapters.columns import Column

_MISSING = "missing"

Place = Callable[[int], str]


def row(position: int) -> str:
    """Name of a row in errors, counted from 1."""
    return f"row {position + 1}"


class Numeric(SettingsModel):
    """A column of numbers as (x - mean) / deviation; a missing number as 0, perhaps with an indicator."""

    kind: Literal["numeric"] = "numeric"
    column: str
    mean: float
    deviation: float = Field(gt=0)
    indicator: bool

    @classmethod
    def fit(cls, column: Column, rows: Bools) -> Self:
        """Learn from ``rows``; there is an indicator of missing numbers if some are missing in these."""
        from fedtide.world.adapters.columns import finite_numbers

        values = finite_numbers(column)
        known = values[rows & ~np.isnan(values)]
        with np.errstate(over="ignore", under="ignore"):
            mean, deviation = (float(known.mean()), float(known.std())) if len(known) else (0.0, 0.0)
        if not np.isfinite([mean, deviation]).all():
            raise SettingsError(f"column {column.name!r}: its values are too large to be standardized")
        # The deviation of equal numbers may be above 0, and their mean another number, by rounding.
        if not deviation or known.min() == known.max():
            mean, deviation = float(known[:1].sum()), 1.0
        return cls(column=column.name, mean=mean, deviation=deviation, indicator=len(known) < rows.sum())

    @property
    def features(self) -> tuple[str, ...]:
        return (self.column, f"{self.column} is missing") if self.indicator else (self.column,)

    def apply(self, column: Column) -> NDArray[np.float32]:
        """Features [n, 1 or 2]."""
        from fedtide.world.adapters.columns import finite_numbers

        values = finite_numbers(column)
        known = ~np.isnan(values)
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = np.where(known, (values - self.mean) / self.deviation, 0.0).astype(np.float32)
        column.refuse(~np.isfinite(scaled), f"a number nearer to the mean of the training rows, {self.mean:g}")
        return np.stack([scaled, ~known] if self.indicator else [scaled], axis=1).astype(np.float32)

    def example(self) -> Any:
        return self.mean


class Categorical(SettingsModel):
    """A column of categories as one indicator per category; a missing value is a category, an unknown one is none of them.

    Categories are names (:func:`fedtide.world.adapters.names.name_of`), so that ``007`` and ``7`` are two; if only one of them
    was learned, the other is the same, since frames of pandas hold both as 7.
    """

    kind: Literal["categorical"] = "categorical"
    column: str
    categories: tuple[str, ...] = Field(min_length=1)

    @classmethod
    def fit(cls, column: Column, rows: Bools) -> Self:
        codes, found = categories_of(column)
        seen = np.unique(codes[rows])
        return cls(column=column.name, categories=tuple(sorted({found[code] for code in seen})))

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(f"{self.column} is {category}" for category in self.categories)

    def apply(self, column: Column) -> NDArray[np.float32]:
        codes, found = categories_of(column)
        known = np.array(positions(found, self.categories), dtype=np.int64)[codes]
        hot = np.zeros((len(known), len(self.categories)), dtype=np.float32)
        rows = np.flatnonzero(known >= 0)
        hot[rows, known[rows]] = 1.0
        return hot

    def example(self) -> Any:
        return self.categories[0] if self.categories[0] != _MISSING else None


class Hashed(SettingsModel):
    """A column of many categories as indicators of ``buckets`` hashed groups of them (Weinberger et al. 2009).

    The hash is BLAKE2b, keyed by the column's name; equal numbers share a group. A missing value is a category, and unknown
    ones have groups, too.
    """

    kind: Literal["hashed"] = "hashed"
    column: str
    buckets: int = Field(ge=2)

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(f"{self.column} in bucket {bucket}" for bucket in range(self.buckets))

    def apply(self, column: Column) -> NDArray[np.float32]:
        codes, found = categories_of(column)
        key = self.column.encode()[:64]  # the longest
        hashes = (blake2b(as_number(category).encode(), digest_size=8, key=key).digest() for category in found)
        bucket = np.array([int.from_bytes(value, "big") % self.buckets for value in hashes])
        hot = np.zeros((len(codes), self.buckets), dtype=np.float32)
        hot[np.arange(len(codes)), bucket[codes]] = 1.0
        return hot

    def example(self) -> Any:
        return "a category"


def categories_of(column: Column) -> tuple[Ints, list[str]]:
    """Positions [n] in a list of categories, and this list, in which a category may be there more than once."""
    codes, found = names_in(column.values)
    # -1, of missing values, is the last
    return codes, [*(name.strip() or _MISSING for name in found), _MISSING]


class Encoding(SettingsModel):
    """How rows become inputs, learned from some of them, and what the outputs of the network are.

    >>> import fedtide, pandas as pd
    >>> frame = pd.DataFrame({"size": [1.0, 3.0, None], "color": ["red", "blue", "red"]})
    >>> encoding = fedtide.Encoding.fit(frame, ["size"], ["color"], outputs=["late", "on time"])
    >>> encoding.features
    ('size', 'size is missing', 'color is blue', 'color is red')
    >>> encoding.apply(frame[::-1]).tolist()
    [[0.0, 1.0, 0.0, 1.0], [1.0, 0.0, 1.0, 0.0], [-1.0, 0.0, 0.0, 1.0]]

    Attributes:
        columns: the table's columns that are used, each with what was learned of it; their features stand in this order.
        task: what is predicted. outputs: names of the classes, of the labels of a multilabel task, or of the targets.
        scale: unit of a regression's outputs, or mean and unit of each.
    """

    columns: tuple[Annotated[Numeric | Categorical | Hashed, Field(discriminator="kind")], ...] = Field(min_length=1)
    task: TaskName = "classification"
    outputs: tuple[str, ...] = Field(min_length=1)
    scale: Annotated[float, Field(gt=0)] | Scales = 1.0

    @model_validator(mode="after")
    def _distinct_names(self) -> Self:
        for key, names in (("columns", [each.column for each in self.columns]), ("outputs", list(self.outputs))):
            if len(set(names)) < len(names):
                raise SettingsError(f"{key}: duplicate name {next(name for name in names if names.count(name) > 1)!r}")
        return self

    @classmethod
    def fit(
        cls,
        frame: pd.DataFrame,
        numeric: Sequence[str],
        categorical: Sequence[str],
        rows: Bools | None = None,
        *,
        outputs: Sequence[str],
        task: TaskName = "classification",
        scale: float | Scales = 1.0,
        buckets: Mapping[str, int] = MappingProxyType({}),
        place: Place = row,
    ) -> Self:
        """Learn from some rows of a table.

        Args:
            frame: n rows. numeric, categorical: names of its columns. rows: bool [n], those to learn from; default: all.
            outputs, task, scale: see above. buckets: of categorical columns that are hashed, by name.
            place: names the row of a position in errors, such as that a value of a numeric column is no number.
        """
        from fedtide.world.adapters.columns import Column

        chosen = np.ones(len(frame), dtype=np.bool_) if rows is None else rows
        columns: list[Numeric | Categorical | Hashed] = [
            Numeric.fit(Column(frame[name], name, place), chosen) for name in numeric
        ]
        columns += [
            Hashed(column=name, buckets=buckets[name])
            if name in buckets
            else Categorical.fit(Column(frame[name], name, place), chosen)
            for name in categorical
        ]
        return cls(columns=tuple(columns), task=task, outputs=tuple(outputs), scale=scale)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features."""
        return tuple(name for each in self.columns for name in each.features)

    def apply(self, frame: pd.DataFrame, place: Place = row) -> Tensor:
        """Features float32 [n, features] of rows; columns may be in any order, and others beside them.

        Raises:
            SettingsError: a column is missing, or a value of a numeric one is no finite number.
        """
        from fedtide.world.adapters.columns import Column

        for each in self.columns:
            if each.column not in frame.columns:
                raise SettingsError(nearest(f"no column {each.column!r}", each.column, map(str, frame.columns)))
        parts = [each.apply(Column(frame[each.column], each.column, place)) for each in self.columns]
        return torch.from_numpy(np.concatenate(parts, axis=1))

    def predictions(self, outputs: Tensor) -> pd.DataFrame:
        """Named predictions from the outputs of a network [n, outputs].

        Classification: ``prediction``, the name of the class, and ``probability_<class>``; multilabel: ``prediction_<label>``,
        0 or 1, and ``probability_<label>``; regression: ``prediction``, or ``prediction_<target>`` if there are several.
        """
        import pandas as pd

        values = outputs.to(torch.float64)
        if self.task == "regression":
            values = restored(values, self.scale) if isinstance(self.scale, tuple) else values * self.scale
            return pd.DataFrame(values.numpy(), columns=list(self._predicted))
        if self.task == "multilabel":
            shares = values.sigmoid()
            found = pd.DataFrame((values > 0).to(torch.int64).numpy(), columns=list(self._predicted))
        else:
            shares = values.softmax(1)
            found = pd.DataFrame({"prediction": np.array(self.outputs, dtype=object)[outputs.argmax(1).numpy()]})
        return pd.concat([found, pd.DataFrame(shares.numpy(), columns=list(self._shares))], axis=1)

    @property
    def predicted(self) -> dict[str, type]:
        """Columns of :meth:`predictions`, with the type of their values."""
        kind = {"classification": str, "multilabel": int, "regression": float}[self.task]
        return dict.fromkeys(self._predicted, kind) | dict.fromkeys(self._shares, float)

    @property
    def _predicted(self) -> tuple[str, ...]:
        several = self.task == "multilabel" or (self.task == "regression" and len(self.outputs) > 1)
        return tuple(f"prediction_{name}" for name in self.outputs) if several else ("prediction",)

    @property
    def _shares(self) -> tuple[str, ...]:
        return () if self.task == "regression" else tuple(f"probability_{name}" for name in self.outputs)

    def example(self) -> pd.DataFrame:
        """Two rows that are nobody's: means and first categories, and only missing values."""
        import pandas as pd

        return pd.DataFrame({each.column: [each.example(), None] for each in self.columns})
