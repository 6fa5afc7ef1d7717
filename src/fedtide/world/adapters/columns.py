"""Columns of labels, clients, times and numbers, with one line for the first value that is none."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fedtide.core.array_types import Bools, Floats, Ints
from fedtide.core.errors import SettingsError, shortened
from fedtide.world.adapters.names import names_in, positions
from fedtide.world.dataset import Origins

MISSING_NUMBERS = frozenset(
    {
        *("#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA"),
        *("NULL", "NaN", "None", "n/a", "nan", "null"),
    }
)
"""Texts that are a missing value in a column of numbers, those of pandas; in other columns they are names."""

A_NUMBER = (
    "a number (if this stands for a missing one, list it in data.missing; for a decimal comma set data.decimal; for names list "
    "the column in data.categorical)"
)
"""What a text in a column of numbers should be instead, and what to do if it should not."""

_EXACT = 2.0**53
"""From here on different integers are one float."""
_FEW = 10  # different numbers, for each text among them, that may be names of categories
_GROUPED = re.compile(r"\s*[-+]?(\d{1,3}([., '\u00a0\u202f]\d{3})+([.,]\d+)?|\d+[.,]\d+)\s*")


@dataclass(frozen=True)
class Column:
    """One value per sample; errors call it ``name``, and the sample of a position ``place(position)``."""

    values: pd.Series[Any]
    name: str
    place: Callable[[int], str]
    decimal: str = "."
    """Decimal sign of numbers that are texts."""

    def refuse(self, bad: Any, wanted: str) -> None:
        """Refuse the first value where ``bad``, bool [n], is true; ``wanted`` is what it should be."""
        wrong = np.flatnonzero(np.asarray(bad, dtype=np.bool_))
        if len(wrong):
            value = self.values.iloc[wrong[0]]
            shown = "empty" if _is_missing(value) else repr(shortened(str(value)))
            raise SettingsError(f"{self.place(int(wrong[0]))}: {self.name} is {shown}, expected {wanted}")


def numbers(column: Column, wanted: str = "a number") -> pd.Series[float]:
    """Values as floats, NaN where one is missing; a SettingsError if one is no number, but another text than ``wanted``."""
    floats, wrong = floats_of(column)
    column.refuse(wrong, wanted)
    return pd.Series(floats, index=column.values.index)


def finite_numbers(column: Column) -> Floats:
    """The same as float64 [n], of a column without infinite ones."""
    values: Floats = np.asarray(numbers(column), dtype=np.float64)
    column.refuse(np.isinf(values), "a finite number, or nothing if unknown")
    return values


def is_numeric(column: Column) -> bool:
    """Whether a column holds numbers; a SettingsError if most of its values are, or many different ones, but not all."""
    if pd.api.types.is_numeric_dtype(column.values):
        return True
    if pd.api.types.is_datetime64_any_dtype(column.values):
        return False
    floats, wrong = floats_of(column)
    strays = column.values[wrong]
    if not len(strays):
        return not np.isnan(floats).all()
    known = floats[~np.isnan(floats) & ~column.values.astype(str).str.lower().isin(("true", "false")).to_numpy()]
    if len(known) > len(floats) / 2 or len(np.unique(known)) > _FEW * strays.nunique():
        column.refuse(wrong, A_NUMBER)
    return False


def refuse_grouped_numbers(column: Column) -> None:
    """Refuse texts that are numbers with a decimal comma, or with signs between thousands, if most are such."""
    grouped = column.values.notna() & column.values.astype(str).str.fullmatch(_GROUPED).astype(bool)
    if grouped.sum() > column.values.notna().sum() / 2:
        column.refuse(grouped, A_NUMBER)


def floats_of(column: Column) -> tuple[Floats, Bools]:
    """Values as floats, NaN where there is none, and which are no number, both [n]; truth values are 0 and 1 among such."""
    values = column.values
    if pd.api.types.is_numeric_dtype(values):
        return values.to_numpy(dtype=np.float64, na_value=np.nan), np.zeros(len(values), dtype=np.bool_)
    texts = values.astype("string").fillna("").str.strip()
    truth, absent = texts.str.lower().isin(("true", "false")), texts.isin({"", *MISSING_NUMBERS})
    if column.decimal != ".":
        texts = texts.str.replace(".", "?", regex=False).str.replace(column.decimal, ".", regex=False)
    parsed = pd.to_numeric(texts.mask(absent), errors="coerce").to_numpy(dtype=np.float64, copy=True)
    if (np.isnan(parsed) | np.isin(parsed, (0.0, 1.0))).all():
        parsed[truth] = texts[truth].str.lower() == "true"
    return parsed, np.isnan(parsed) & ~absent.to_numpy()


def classes(column: Column, known: tuple[str, ...] = ()) -> tuple[Ints, tuple[str, ...]]:
    """Labels as int64 [n] class numbers, and the names of the classes: ``known``, or else all labels in sorted order.

    Raises:
        SettingsError: a label is missing, a fraction, unknown, or no integer although most are.
    """
    if len(set(known)) < len(known):
        raise SettingsError(f"classes: duplicate class name {next(name for name in known if known.count(name) > 1)!r}")
    codes, own = _names(column, "a label")
    if pd.api.types.is_float_dtype(column.values):
        column.refuse(column.values % 1 > 0, "an integer or a name")
    if all(re.fullmatch(r"-?\d+", name) for name in own):  # in the order of the numbers
        order = sorted(range(len(own)), key=lambda place: (int(own[place]), own[place]))
        codes, own = np.argsort(order)[codes], tuple(own[place] for place in order)
    elif not known:
        _refuse_strays(column, codes, own)
    labels = np.array(positions(own, known), dtype=np.int64)[codes] if known else codes
    names = known or own
    column.refuse(labels < 0, f"one of {', '.join(names[:10])}")
    return labels, names


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
    column.refuse(~np.isfinite(floats) | (floats != np.floor(floats)) | (abs(floats) >= 2.0**63), instead)
    return values.to_numpy(dtype=np.int64)


def clients(column: Column) -> tuple[Ints, tuple[str, ...]]:
    """Clients as int64 [n] numbers, and their names in sorted order; a SettingsError if one is missing or has no name."""
    client, names = _names(column, "a client")
    column.refuse(np.array([not name.strip() for name in names], dtype=np.bool_)[client], "a client")
    return client, names


def _names(column: Column, wanted: str) -> tuple[Ints, tuple[str, ...]]:
    """Positions [n] in the sorted names of a column; a missing name, and a float that is no exact integer, is refused."""
    column.refuse(column.values.isna(), wanted)
    if pd.api.types.is_float_dtype(column.values):
        column.refuse(
            column.values.abs() >= _EXACT, f"{wanted} as an integer or a text (a float has at most 15 exact digits)"
        )
    codes, found = names_in(column.values)
    numbers_, names = pd.factorize(pd.Series(found, dtype=object), sort=True)
    return numbers_.astype(np.int64)[codes], tuple(names)


def origins_of(
    client: Ints | None, time: Ints | None, parts: tuple[Ints, Ints], clients: tuple[str, ...], unit: str
) -> Origins:
    """Clients and times, where they are known, of training and test samples at these positions."""
    train_client, test_client = (None if client is None else client[part] for part in parts)
    train_time, test_time = (None if time is None else time[part] for part in parts)
    return Origins(train_client, test_client, train_time, test_time, clients, unit)


def _is_missing(value: Any) -> bool:
    return not value.strip() if isinstance(value, str) else pd.api.types.is_scalar(value) and bool(pd.isna(value))
