"""Reading tables, with one line for what is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedtide.core.errors import SettingsError, nearest

Ints = NDArray[np.int64]


def read_table(path: Path) -> pd.DataFrame:
    """The rows of a CSV or Parquet file.

    Raises:
        SettingsError: there is no such file, or it is no table.
    """
    if not path.is_file():
        raise SettingsError(f"data.file = {str(path)!r}: no such file")
    try:
        is_parquet = path.suffix in (".parquet", ".pq")
        frame = pd.read_parquet(path) if is_parquet else pd.read_csv(path, engine="pyarrow")
    except Exception as error:  # pyarrow has errors of its own
        raise SettingsError(f"{path}: not a readable table: {' '.join(str(error).split())}") from None
    if frame.empty:
        raise SettingsError(f"{path}: no rows")
    return frame


def require(frame: pd.DataFrame, path: Path, columns: dict[str, str]) -> None:
    """Check that columns exist.

    Args:
        frame: the table. path: its file. columns: setting by name of the column that it names.

    Raises:
        SettingsError: one does not.
    """
    for column, setting in columns.items():
        if column not in frame.columns:
            raise SettingsError(
                f"{path}: " + nearest(f"data.{setting}: no column {column!r}", column, list(frame.columns))
            )


def numbers(frame: pd.DataFrame, path: Path, column: str) -> pd.Series[float]:
    """A numeric column as floats, NaN where a value is missing.

    Raises:
        SettingsError: a value is no number; the message names its line.
    """
    values = pd.to_numeric(frame[column], errors="coerce")
    _refuse(frame, path, column, values.isna() & frame[column].notna(), "a number")
    return values.astype(np.float64)


def is_numeric(frame: pd.DataFrame, path: Path, column: str) -> bool:
    """Whether a column holds numbers.

    Raises:
        SettingsError: most of its values do, but not all; the message names the line of the first other one.
    """
    if pd.api.types.is_numeric_dtype(frame[column]):
        return True
    if pd.to_numeric(frame[column], errors="coerce").notna().mean() > 0.5:
        numbers(frame, path, column)
        return True
    return False


def classes(frame: pd.DataFrame, path: Path, column: str, known: tuple[str, ...]) -> tuple[Ints, tuple[str, ...]]:
    """Labels as int64 [n] numbers of classes, and the classes' names.

    Without ``known`` classes they are all values in the file, in numerical order if they are integers.

    Raises:
        SettingsError: a label is missing, a fraction or unknown; the message names its line.
    """
    values = frame[column]
    _refuse(frame, path, column, values.isna(), "a label")
    if pd.api.types.is_bool_dtype(values):
        values = values.astype(np.int64)
    if pd.api.types.is_float_dtype(values):
        _refuse(frame, path, column, values != np.floor(values), "an integer or a name")
        values = values.astype(np.int64)
    names = known or tuple(str(value) for value in np.sort(values.unique()))
    codes = pd.Categorical(values.astype(str), categories=list(names)).codes.astype(np.int64)
    _refuse(frame, path, column, pd.Series(codes < 0, index=frame.index), f"one of {', '.join(names[:10])}")
    if len(names) < 2:
        raise SettingsError(f"{path}: column {column!r} has one value only, {names[0]!r}")
    return codes, names


def names_of(frame: pd.DataFrame, path: Path, column: str) -> tuple[Ints, tuple[str, ...]]:
    """Clients as int64 [n] numbers, and their names in sorted order.

    Raises:
        SettingsError: one is missing; the message names its line.
    """
    _refuse(frame, path, column, frame[column].isna(), "a client")
    codes, names = pd.factorize(frame[column].astype(str), sort=True)
    return codes.astype(np.int64), tuple(names)


def times_of(frame: pd.DataFrame, path: Path, column: str) -> Ints:
    """Times as int64 [n]: integers as they are, dates as seconds since 1970 (UTC).

    Raises:
        SettingsError: one is missing or neither; the message names its line.
    """
    values = frame[column]
    _refuse(frame, path, column, values.isna(), "a time")
    if pd.api.types.is_numeric_dtype(values):
        _refuse(frame, path, column, values != np.floor(values), "an integer or a date")
        return values.to_numpy(dtype=np.int64)
    parsed = pd.to_datetime(values, utc=True, errors="coerce", format="ISO8601")
    _refuse(frame, path, column, parsed.isna(), "an integer or a date such as 2013-01-31T18:00:00Z")
    return parsed.dt.tz_localize(None).to_numpy(dtype="datetime64[s]").astype(np.int64)


def _refuse(frame: pd.DataFrame, path: Path, column: str, bad: pd.Series[bool], wanted: str) -> None:
    """Refuse the first bad value."""
    if bad.any():
        row = int(np.flatnonzero(bad.to_numpy())[0])
        value = frame[column].iloc[row]
        shown = "empty" if pd.isna(value) else repr(str(value))
        raise SettingsError(f"{path}, line {row + 2}: {column} is {shown}, expected {wanted}")
