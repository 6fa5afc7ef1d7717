"""Published numbers: CSV files with one row per number."""

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fedtide.core.errors import SettingsError, nearest


class Number(NamedTuple):
    """A published value and its spread; NaN where none was published."""

    mean: float
    std: float


Rows = dict[tuple[tuple[str | None, ...], str], Number]
"""Numbers by the values of the table's columns (None for a column the file does not have) and name of the quantity."""

_NUMBERS = ("mean", "std")
_QUANTITY = "quantity"


def read_published(path: Path, columns: Mapping[str, Sequence[str]], quantity: str = "accuracy") -> Rows:
    """Read a file of published numbers.

    Columns are some of those of the table (without ``transition``, say, a number holds for all transitions),
    ``quantity``, ``mean`` and ``std``.

    Args:
        columns: the table's columns and the values that occur in them. quantity: of rows that do not name theirs.

    Raises:
        SettingsError: no such file, a column or value unknown to the experiment, a duplicate row, not a number.
    """
    if not path.is_file():
        raise SettingsError(f"no file {path} with published numbers")
    with path.open(newline="", encoding="utf-8") as stream:
        reader = csv.DictReader(stream)
        allowed = (*columns, _QUANTITY, *_NUMBERS)
        for name in reader.fieldnames or ():
            if name not in allowed:
                raise SettingsError(nearest(f"{path.name}: unknown column {name!r}", name, allowed))
        if "mean" not in (reader.fieldnames or ()):
            raise SettingsError(f"{path.name}: no column 'mean'")
        rows: Rows = {}
        for row in reader:
            place = f"{path.name}, line {reader.line_num}"
            for name, known in columns.items():
                if name in row and row[name] not in known:
                    raise SettingsError(nearest(f"{place}: unknown {name} {row[name]!r}", str(row[name]), known))
            key = (tuple(row.get(name) for name in columns), row.get(_QUANTITY) or quantity)
            if key in rows:
                raise SettingsError(f"{place}: duplicate row")
            rows[key] = Number(*(_number(row.get(name), f"{place}, {name}") for name in _NUMBERS))
    return rows


def _number(text: str | None, place: str) -> float:
    try:
        return float(text) if text else math.nan
    except ValueError:
        raise SettingsError(f"{place}: {text!r} is not a number") from None
