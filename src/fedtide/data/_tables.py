"""Reading tables, with one line for what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from fedtide.adapters.columns import Column
from fedtide.core.errors import SettingsError, nearest

_PARQUET = (".parquet", ".pq")


def read_table(path: Path) -> pd.DataFrame:
    """The rows of a CSV or Parquet file; anything else is a SettingsError."""
    if not path.is_file():
        raise SettingsError(f"data.file = {str(path)!r}: no such file")
    try:
        frame = pd.read_parquet(path) if path.suffix in _PARQUET else pd.read_csv(path, engine="pyarrow")
    except Exception as error:  # pyarrow has errors of its own
        raise SettingsError(f"{path}: not a readable table: {' '.join(str(error).split())}") from None
    if frame.empty:
        raise SettingsError(f"{path}: no rows")
    return frame


def require(frame: pd.DataFrame, path: Path, columns: dict[str, str]) -> None:
    """Refuse columns, the keys of ``columns``, that the table does not have; its values are the settings that name them."""
    for column, setting in columns.items():
        if column not in frame.columns:
            problem = f"{path}: data.{setting}: no column {column!r}"
            raise SettingsError(nearest(problem, column, list(frame.columns)))


def column_of(frame: pd.DataFrame, path: Path, name: str) -> Column:
    """A column of the table in a file; errors name the line of a CSV file, or the row, from 1."""
    return Column(frame[name], name, place_in(path))


def place_in(path: Path) -> Callable[[int], str]:
    """Where the row of a position is found in a file, for errors."""
    line = "row {}" if path.suffix in _PARQUET else "line {}"
    first = 1 if path.suffix in _PARQUET else 2
    return lambda row: f"{path}, {line.format(row + first)}"
