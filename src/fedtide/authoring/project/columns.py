"""Which columns of a table may be its label, its client and its time, and why."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedtide.core.array_types import Ints
from fedtide.core.errors import SettingsError
from fedtide.world.adapters.columns import MISSING_NUMBERS, Column, floats_of
from fedtide.world.adapters.dates import times

FEW = 20
"""Classes that a column may have to be taken for a label; a label named as one may have more."""

_LABEL = r"label|target|class|outcome|returned|churn|fault|default|species|diagnosis|y"
_CLIENT = (
    r"client|user|customer|device|owner|shop|store|site|hospital|clinic|patient|account|meter|machine|sensor|station"
)
_CLIENT += r"|vehicle|branch|school|bank|member|author|household|farm|bike|tailnum"
_TIME = r"time|date|datetime|timestamp|day|when|hour|month|year|week|created|ts|step|tick|period|round"
_FORMATS = (
    "%d/%m/%Y",
    "%m/%d/%Y",
    "%d.%m.%Y",
    "%Y/%m/%d",
    "%d-%m-%Y",
    "%Y%m%d",
    "%d/%m/%Y %H:%M",
    "%d.%m.%Y %H:%M",
    "%Y",
)
_SYMBOLS = frozenset({"?", "??", "-", "--", ".", "..", "*"})
_SIGNS = _SYMBOLS | {"unknown", "missing", "n.a.", "n/k", "not available"}
_UNITS = ("s", "ms", "us", "ns")
_RECENT = 10**8  # seconds from 1970 to 1973: smaller numbers count something else


class Found(NamedTuple):
    """A column and the reason for it, a sentence without its subject."""

    name: str
    why: str


class Time(NamedTuple):
    """A column of times, as :class:`Found`; its values in seconds, or in ``unit`` if they are no dates; settings to read it."""

    name: str
    why: str
    values: Ints
    unit: str
    settings: dict[str, str]


def find_time(frame: pd.DataFrame, place: Callable[[int], str]) -> Time | None:
    """Columns named as times come first, then dates, in the order of the file."""
    columns = sorted(frame.columns, key=lambda name: not _named(name, _TIME))
    for name in columns:
        values, named = frame[name], _named(name, _TIME)
        if pd.api.types.is_numeric_dtype(values) and not named:
            continue
        found = _times(Column(values, name, place))
        if found is not None and values.nunique() > 1:
            known, unit, settings = found
            what = f"dates such as {values.iloc[0]}" if unit == "s" else "integers in order"
            return Time(name, f"{what}; matched by name" if named else what, known, unit, settings)
    return None


def find_missing(columns: Iterable[Column]) -> dict[str, dict[str, int]]:
    """Texts that are a missing value in columns whose other values are numbers: in how many rows, by column and text."""
    found = dict[str, dict[str, int]]()
    for column in columns:
        floats, _ = floats_of(column)
        known = ~np.isnan(floats)
        texts = _counts(column.values[~known])
        if len(np.unique(floats[known])) > 1 and all(
            text.lower() in _SIGNS or text in MISSING_NUMBERS for text in texts
        ):
            found[column.name] = texts
    return found


def find_symbols(column: Column) -> dict[str, int]:
    """Values of a column of texts that stand for a missing one, and in how many rows."""
    counts = _counts(column.values)
    return {text: count for text, count in counts.items() if text in _SYMBOLS}


def _counts(values: pd.Series[Any]) -> dict[str, int]:
    return {str(value): int(count) for value, count in values.value_counts().items()}


def find_client(frame: pd.DataFrame, names: pd.DataFrame, taken: set[str]) -> Found | None:
    """A column that repeats: named as an owner, or text with the most values that have five rows or more on average.

    ``names``: the same columns as texts, where they are read from texts.
    """
    named, others = list[Found](), list[tuple[int, Found]]()
    for name in (name for name in frame.columns if name not in taken):
        values, count = frame[name], names[name].nunique()
        if not 2 <= count <= len(frame) / 2 or values.isna().any() or pd.api.types.is_float_dtype(values):
            continue
        shown = f"{count:,} clients, {len(frame) / count:.0f} rows per client on average"
        if _named(name, _CLIENT):
            named.append(Found(name, f"{shown}; matched by name"))
        elif not pd.api.types.is_numeric_dtype(values) and 5 <= count <= len(frame) / 5 and not _named(name, _LABEL):
            others.append((count, Found(name, f"{shown}; text column with the most distinct groups")))
    return named[0] if named else max(others, default=(0, None), key=lambda item: item[0])[1]


def find_label(frame: pd.DataFrame, names: pd.DataFrame, taken: set[str]) -> tuple[Found, bool]:
    """The label, and whether it is a number to predict (regression) rather than a class; ``names``: see above.

    Raises:
        SettingsError: no column can be one.
    """
    free = [name for name in frame.columns if name not in taken and not frame[name].isna().any()]
    classes = {name: names[name].nunique() for name in free if not _is_fraction(frame[name])}
    for name in free:
        if _named(name, _LABEL) and (name not in classes or 2 <= classes[name] <= 5 * FEW):
            shown = f"{classes[name]} classes" if name in classes else "numbers"
            return Found(name, f"{shown}; matched by name"), name not in classes
    few = [name for name, count in classes.items() if 2 <= count <= FEW]
    if few:
        name = next((name for name in reversed(few) if classes[name] == 2 or name == free[-1]), few[-1])
        return Found(name, f"{classes[name]} classes; last column with few distinct values"), False
    numeric = [name for name in free if pd.api.types.is_numeric_dtype(frame[name])]
    if numeric:
        return Found(numeric[-1], "last numeric column; no column has few enough values for classes"), True
    raise SettingsError("no column can be a label: none has 2 to 20 distinct values, or numbers, without missing rows")


def find_identifiers(frame: pd.DataFrame, taken: set[str]) -> list[str]:
    """Columns with another value in every row, no fractions: they number or name rows."""
    free = (name for name in frame.columns if name not in taken and not _is_fraction(frame[name]))
    return [name for name in free if len(frame) > FEW and frame[name].nunique() == len(frame)]


def _named(name: str, words: str) -> bool:
    parts = re.split(r"[^a-z0-9]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())
    return any(re.fullmatch(words, part) for part in parts)


def _is_fraction(values: pd.Series[Any]) -> bool:
    return bool(pd.api.types.is_float_dtype(values) and (values.dropna() % 1 > 0).any())


def _times(column: Column) -> tuple[Ints, str, dict[str, str]] | None:
    """Times of a column, their unit, and the settings with which they are read; None if it holds none."""
    numeric = pd.api.types.is_numeric_dtype(column.values)
    tries: list[tuple[str, str | None]] = [(unit, None) for unit in (_UNITS if numeric else ("s",))]
    for unit, date_format in [*tries, *(("s", known) for known in _FORMATS)]:
        try:
            known, found = times(column, unit, date_format)
        except SettingsError:
            continue
        if date_format is None and numeric and known.min() < _RECENT:
            continue
        settings = {"date_format": date_format} if date_format else {"unit": unit} if unit != "s" else {}
        return known, found, settings
    if numeric and not _is_fraction(column.values) and not column.values.isna().any():
        return column.values.to_numpy(dtype="int64"), "step", {"unit": "step"}
    return None
