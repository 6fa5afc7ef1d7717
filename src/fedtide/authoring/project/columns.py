"""Which columns of a table may be its label, its client and its time, and why."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedtide.core.array_types import Ints
from fedtide.core.errors import SettingsError
from fedtide.world.adapters.columns import Column
from fedtide.world.adapters.dates import RECENT, are_dates, dates_in, formats_of, joined, part_of, snake_case, times
from fedtide.world.adapters.names import name_of
from fedtide.world.adapters.zones import IN_UTC, proposed

FEW = 20
"""Classes that a column may have to be taken for a label; a label named as one may have more."""

_LABEL = r"labels?|target|class|outcome|returned|churn|churned|fault|default|defaulted|species|diagnosis|y"
_LABEL += r"|readmitted|readmission|died|death|deceased|mortality|survived|relapse|recurrence|fraud|spam"
_CLIENT = (
    r"client|user|customer|device|owner|shop|store|site|hospital|clinic|patient|account|meter|machine|sensor|station"
)
_CLIENT += r"|vehicle|branch|school|bank|member|author|household|farm|bike|tailnum"
_TIME = r"time|date|datetime|timestamp|day|when|hour|month|year|week|created|ts"
_GAPS = 0.1  # share of missing values up to which a column that is not named as an owner or a label may be one
SIGNS = frozenset({"?", "??", "-", "--", ".", "..", "*", "unknown", "missing", "n.a.", "n/k", "not available"})
"""Texts that mostly stand for a missing value."""

_WORDS = 3  # of a value, on average, from which it is running text
_UNITS = ("s", "ms", "us", "ns")
_BY_NAME, _GIVEN = "; matched by name", "; as given"


class Found(NamedTuple):
    """A column and the reason for it, a sentence without its subject."""

    name: str
    why: str


class Time(NamedTuple):
    """Columns of dates, as :class:`Found`; their values in seconds; settings to read them."""

    columns: tuple[str, ...]
    why: str
    values: Ints
    settings: dict[str, str]

    @property
    def name(self) -> str:
        return ", ".join(self.columns)


def find_time(frame: pd.DataFrame, place: Callable[[int], str], given: Sequence[str] = ()) -> Time | None:
    """The dates: columns named as times before others; parts of a date are tried together, and only then alone.

    Raises:
        SettingsError: the ``given`` columns have no dates.
    """
    if given:
        if time := _time([Column(frame[name], name, place) for name in given], True):
            return time._replace(why=time.why.replace(_BY_NAME, _GIVEN))
        raise SettingsError(f"--time: {', '.join(given)} has no dates; set data.unit for times in another unit")
    parts = [name for name in frame.columns if part_of(name)]
    named = [name for name in frame.columns if _named(name, _TIME) and name not in parts]
    rest = [name for name in frame.columns if name not in named]
    alone = [[(name,) for name in names] for names in (named, rest)]
    for columns in (*alone[0], *_parts_of_dates(parts), *alone[1]):
        if frame[list(columns)].nunique().max() < 2:
            continue
        matched = len(columns) > 1 or _named(columns[0], _TIME)
        with suppress(SettingsError):
            if time := _time([Column(frame[name], name, place) for name in columns], matched):
                return time
    return None


def find_signs(frame: pd.DataFrame) -> dict[str, list[str]]:
    """Which of :data:`SIGNS` there are, and the columns that have them."""
    found: dict[str, list[str]] = {}
    for name in frame.columns:
        for value in frame[name].dropna().unique():
            if str(value).lower() in SIGNS:
                found.setdefault(str(value), []).append(name)
    return found


def find_client(frame: pd.DataFrame, names: pd.DataFrame, taken: set[str], given: str | None = None) -> Found | None:
    """A column that repeats: given, named as an owner, or text with the most values that have five rows or more on average.

    ``names``: the same columns as texts, where they are read from texts.
    """
    named: list[Found] = []
    others: list[tuple[int, Found]] = []
    for name in [given] if given else [name for name in frame.columns if name not in taken]:
        values, count = frame[name], names[name].nunique()
        shown = f"{count:,} clients, {len(frame) / max(count, 1):.0f} rows per client on average"
        if given:
            return Found(name, shown + _GIVEN)
        enough = values.isna().mean() <= _GAPS or _named(name, _CLIENT)
        if not 2 <= count <= len(frame) / 2 or _is_fraction(values) or not enough:
            continue
        if _named(name, _CLIENT):
            named.append(Found(name, shown + _BY_NAME))
        elif (
            not pd.api.types.is_numeric_dtype(values)
            and 5 <= count <= len(frame) / 5
            and not _named(name, f"{_LABEL}|{_TIME}")
        ):
            others.append((count, Found(name, f"{shown}; text column with the most distinct groups")))
    return named[0] if named else max(others, default=(0, None), key=lambda item: item[0])[1]


def find_label(
    frame: pd.DataFrame, names: pd.DataFrame, taken: set[str], given: str | None = None
) -> tuple[Found, bool]:
    """The label, and whether it is a number to predict (regression) rather than a class; ``names``, ``given``: see above.

    Raises:
        SettingsError: no column can be one, or the given one cannot.
    """
    free = [given] if given else [name for name in frame.columns if name not in taken]
    free = [name for name in free if frame[name].notna().any()]
    classes = {
        name: len(set(map(name_of, names[name].dropna().unique()[: 6 * FEW])))
        for name in free
        if not _is_fraction(frame[name])
    }
    for name in free:
        if (given or _named(name, _LABEL)) and (name not in classes or 2 <= classes[name] <= 5 * FEW):
            shown = f"{classes[name]} classes" if name in classes else "numbers"
            return Found(name, shown + (_GIVEN if given else _BY_NAME)), name not in classes
    if given:
        if classes.get(given, 2) > 1 and pd.api.types.is_numeric_dtype(frame[given]):
            return Found(given, f"numbers{_GIVEN}"), True
        count = f"{classes.get(given, 0)} values" + (" or more" if classes.get(given, 0) > 5 * FEW else "")
        raise SettingsError(f"--label: {given!r} has {count}, expected numbers or 2 to {5 * FEW} classes")
    full = [name for name in free if frame[name].isna().mean() <= _GAPS]
    if chosen := _last_of_few(full, classes):
        better = _last_of_few(free, classes)
        other = f"; {better!r} has gaps; if it is the label, give --label" if better and better != chosen else ""
        return Found(chosen, f"{classes[chosen]} classes; last column with few distinct values{other}"), False
    numeric = [name for name in full if pd.api.types.is_numeric_dtype(frame[name])]
    if numeric:
        return Found(numeric[-1], "last numeric column; no column has few enough values for classes"), True
    raise SettingsError("no column can be a label: none has 2 to 20 distinct values, or numbers, in nine of ten rows")


def _last_of_few(free: list[str], classes: dict[str, int]) -> str | None:
    """The last column of two classes, or of up to :data:`FEW` if it is the last of all, or none has two."""
    few = [name for name in free if 2 <= classes.get(name, 0) <= FEW]
    return next((name for name in reversed(few) if classes[name] == 2 or name == free[-1]), few[-1] if few else None)


def find_identifiers(frame: pd.DataFrame) -> list[str]:
    """Columns with another value in every row, no fractions: they number or name rows."""
    return [
        name
        for name in frame.columns
        if len(frame) > FEW and frame[name].nunique() == len(frame) and not _is_fraction(frame[name])
    ]


def find_texts(frame: pd.DataFrame) -> list[str]:
    """Columns of running text: hardly a value is there twice, and values have three words or more on average."""
    columns = {name: frame[name].dropna() for name in frame.columns if not pd.api.types.is_numeric_dtype(frame[name])}
    return [
        name
        for name, values in columns.items()
        if 2 * values.nunique() > len(values) > FEW and values.astype(str).str.count(r"\S+").mean() >= _WORDS
    ]


def _named(name: str, words: str) -> bool:
    return any(re.fullmatch(words, part) for part in snake_case(name).split("_"))


def _is_fraction(values: pd.Series[Any]) -> bool:
    return bool(pd.api.types.is_float_dtype(values) and (values.dropna() % 1 > 0).any())


def _parts_of_dates(names: list[str]) -> list[tuple[str, ...]]:
    """Columns named as a year, a month and so on, the coarsest first, of the same kind of year."""
    parts = sorted((part[1], part[0], name) for name in names if (part := part_of(name)))
    kinds = dict.fromkeys(kind for kind, _, _ in parts)
    lists = [tuple(name for of, _, name in parts if of == kind) for kind in kinds]
    return [columns for columns in lists if len(columns) > 1]


def _time(columns: list[Column], named: bool) -> Time | None:
    """Times in columns, some of which may be missing, and up to half unreadable; None if they are other numbers.

    Raises:
        SettingsError: they are no numbers and hold no times.
    """
    column, date_format = joined(columns)
    known = column.values.dropna()
    if known.empty:
        return None
    names, end = tuple(each.name for each in columns), _BY_NAME if named else ""

    def read(values: pd.Series[Any], unit: str, date_format: str | None = None, zone: str | None = None) -> Ints:
        found = Column(values, column.name, lambda row: column.place(int(values.index[row])))
        return times(found, unit, date_format, timezone=zone)[0]

    dated = pd.api.types.is_datetime64_any_dtype(known)
    numbers = known[:0] if dated else pd.to_numeric(known, errors="coerce").dropna()
    if 2 * len(numbers) > len(known):
        if not named or ((numbers % 1 != 0) & (numbers < RECENT)).any():
            return None
        for unit in _UNITS:
            with suppress(SettingsError):
                seconds = read(numbers, unit)
                if seconds.min() >= RECENT or (unit == "s" and (seconds != numbers).any()):
                    settings = {"unit": unit} if unit != "s" else {}
                    clock = IN_UTC if unit != "s" or (seconds == numbers).all() else ""
                    return Time(names, f"dates such as {known.iloc[0]}{end}{clock}", seconds, settings)
        return None
    formats = formats_of(known)
    if len(columns) > 1 and date_format:
        months = [date_format.replace("%m", month) for month in ("%m", "%B", "%b")]
        formats = [each for each in months if 2 * are_dates(known, each).sum() >= len(known)]
    chosen = formats[0] if formats else None
    fits = are_dates(known, chosen) if formats else np.ones(len(known), dtype=np.bool_)
    clock, zone = proposed(known[fits], dates_in(known[fits], chosen), chosen) if formats else ("", None)
    seconds = read(known[fits], "s", chosen, zone)
    why = f"dates such as {known[fits].iloc[0]}{end}{clock}"
    if len(columns) > 1:
        why += "; no features, unless data.numeric or data.categorical lists them"
    elif len(formats) > 1:
        other = " or ".join(repr(each) for each in formats[1:])
        why += f"; read as {chosen!r}, but {other} fits, too: if it is right, set data.date_format to it"
    settings = {} if chosen in (None, date_format) else {"date_format": str(chosen)}
    return Time(names, why, seconds, settings | ({"timezone": zone} if zone else {}))
