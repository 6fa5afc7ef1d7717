"""Columns of labels, clients, times and numbers, with one line for the first value that is none."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fedtide.core.array_types import Ints
from fedtide.core.errors import SettingsError, shortened
from fedtide.world.dataset import Origins


@dataclass(frozen=True)
class Column:
    """One value per sample; errors call it ``name``, and the sample of a position ``place(position)``."""

    values: pd.Series[Any]
    name: str
    place: Callable[[int], str]

    def refuse(self, bad: Any, wanted: str) -> None:
        """Refuse the first value where ``bad``, bool [n], is true; ``wanted`` is what it should be."""
        wrong = np.flatnonzero(np.asarray(bad, dtype=np.bool_))
        if len(wrong):
            value = self.values.iloc[wrong[0]]
            shown = "empty" if _is_missing(value) else repr(shortened(str(value)))
            raise SettingsError(f"{self.place(int(wrong[0]))}: {self.name} is {shown}, expected {wanted}")


def numbers(column: Column) -> pd.Series[float]:
    """Values as floats, NaN where one is missing; a SettingsError if one is no number."""
    values = pd.to_numeric(column.values, errors="coerce")
    column.refuse(values.isna() & column.values.notna(), "a number")
    return values.astype(np.float64)


def is_numeric(column: Column) -> bool:
    """Whether a column holds numbers; a SettingsError if most of its values are numbers, but not all."""
    if pd.api.types.is_numeric_dtype(column.values):
        return True
    if pd.api.types.is_datetime64_any_dtype(column.values):
        return False
    counts = column.values.value_counts()
    if counts[pd.to_numeric(counts.index.to_series(), errors="coerce").notna()].sum() > len(column.values) / 2:
        numbers(column)
        return True
    return False


def classes(column: Column, known: tuple[str, ...] = ()) -> tuple[Ints, tuple[str, ...]]:
    """Labels as int64 [n] class numbers, and the names of the classes: ``known``, or else all labels in sorted order.

    Raises:
        SettingsError: a label is missing, a fraction, unknown, or no integer although most are.
    """
    if len(set(known)) < len(known):
        raise SettingsError(f"classes: duplicate class name {next(name for name in known if known.count(name) > 1)!r}")
    integers_ = integers(column, "a label", "an integer or a name")
    values = column.values.astype(str) if integers_ is None else pd.Series(integers_)
    codes, found = pd.factorize(values, sort=True)
    own = tuple(str(value) for value in found)
    if integers_ is None and not known:
        _refuse_strays(column, codes, own)
    names = known or own
    number = _numbers_of(own, known, column) if known else np.arange(len(own))
    labels = number[codes].astype(np.int64)
    column.refuse(labels < 0, f"one of {', '.join(names[:10])}")
    return labels, names


def _numbers_of(found: tuple[str, ...], known: tuple[str, ...], column: Column) -> Ints:
    """The class of each label found, int64, -1 for none; integers may be written as ``07``, truth values as ``true``."""
    numbers_ = {name: place for place, name in enumerate(known)}
    if pd.api.types.is_bool_dtype(column.values):
        spelled = {name.lower(): place for name, place in numbers_.items()}
        numbers_ |= {str(value): spelled[name] for value, name in enumerate(("false", "true")) if name in spelled}
    elif pd.api.types.is_numeric_dtype(column.values):
        numbers_ = {str(int(name)): place for name, place in numbers_.items() if re.fullmatch(r"[-+]?\d+", name)}
    return np.array([numbers_.get(name, -1) for name in found], dtype=np.int64)


def _refuse_strays(column: Column, codes: Any, names: tuple[str, ...]) -> None:
    """Refuse a name among integers, which is more often a slip than a class."""
    stray = np.array([re.fullmatch(r"\s*[-+]?\d+(\.0*)?\s*", name) is None for name in names])[codes]
    if stray.mean() < 0.5:
        column.refuse(stray, "an integer, as most are (list the class name in classes if it is one)")


def integers(column: Column, wanted: str, instead: str) -> Ints | None:
    """Numbers as int64 [n]; ``None`` if the column holds something else.

    A missing value is a SettingsError that expected ``wanted``, a fraction or infinity one that expected ``instead``.
    """
    column.refuse(column.values.isna(), wanted)
    values = column.values.infer_objects()
    if not pd.api.types.is_numeric_dtype(values):
        return None
    floats = values.to_numpy(dtype=np.float64)
    column.refuse(~np.isfinite(floats) | (floats != np.floor(floats)), instead)
    return values.to_numpy(dtype=np.int64)


def clients(column: Column) -> tuple[Ints, tuple[str, ...]]:
    """Clients as int64 [n] numbers, and their names in sorted order; a SettingsError if one is missing or has no name."""
    column.refuse(column.values.isna(), "a client")
    values = column.values
    if pd.api.types.is_float_dtype(values) and (values == np.floor(values)).all():
        values = values.astype(np.int64)  # 7 rather than 7.0
    codes, found = pd.factorize(values)
    numbers_, names = pd.factorize(pd.Series([str(value) for value in found], dtype=object), sort=True)
    client = numbers_.astype(np.int64)[codes]
    column.refuse(np.array([not name.strip() for name in names], dtype=np.bool_)[client], "a client")
    return client, tuple(names)


def origins_of(
    client: Ints | None, time: Ints | None, parts: tuple[Ints, Ints], clients: tuple[str, ...], unit: str
) -> Origins:
    """Clients and times, where they are known, of training and test samples at these positions."""
    train_client, test_client = (None if client is None else client[part] for part in parts)
    train_time, test_time = (None if time is None else time[part] for part in parts)
    return Origins(train_client, test_client, train_time, test_time, clients, unit)


def _is_missing(value: Any) -> bool:
    return not value.strip() if isinstance(value, str) else pd.api.types.is_scalar(value) and bool(pd.isna(value))
