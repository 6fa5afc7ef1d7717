"""The rows of a table, with one line for what is wrong; their order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedtide.core.array_types import Bools, Ints
from fedtide.core.errors import SettingsError, nearest
from fedtide.world.adapters.columns import A_NUMBER, MISSING_NUMBERS, Column, numbers
from fedtide.world.adapters.encoding import categories_of
from fedtide.world.adapters.names import name_of, near_equal

_SHOWN = 5  # groups of names


@dataclass(frozen=True)
class Rows:
    """The rows of a file; errors call the row of a position ``place(position)``; ``notes`` say what was left out."""

    path: Path
    frame: pd.DataFrame
    place: Callable[[int], str]
    decimal: str = "."
    notes: tuple[str, ...] = ()

    def column(self, name: str) -> Column:
        """A column; what is neither number nor text nor date is refused."""
        column = Column(self.frame[name], name, self.place, self.decimal)
        if column.values.dtype == object:
            column.refuse(column.values.map(lambda value: isinstance(value, _OTHER)), "a number or a text")
        return column

    def require(self, columns: dict[str, str]) -> None:
        """Refuse columns, the keys of ``columns``, that there are not; its values are the settings that name them."""
        for column, setting in columns.items():
            if column not in self.frame.columns:
                problem = f"{self.path}: data.{setting}: no column {column!r}"
                raise SettingsError(nearest(problem, column, list(self.frame.columns)))

    def order(self, client: Ints | None, time: Ints | None, numeric: list[str], others: list[str], labels: Any) -> Ints:
        """Positions of the rows by time, client and content, so that equal rows in any order are the same data.

        Args:
            client, time: int64 [n], if known. numeric, others: columns of the content. labels: [n] or [n, T], also content.
        """
        content = pd.DataFrame({name: numbers(self.column(name)) for name in numeric}, index=self.frame.index)
        for name in others:  # as texts: how a column is stored may change with a row that is added
            codes, found = categories_of(self.column(name))
            content[name] = np.array(found, dtype=object)[codes]
        parts = [content, pd.DataFrame(np.asarray(labels).reshape(len(content), -1))]
        hashes = [pd.util.hash_pandas_object(part, index=False).to_numpy() for part in parts if part.shape[1]]
        return np.lexsort([*hashes, *(key for key in (client, time) if key is not None)]).astype(np.int64)

    def __getitem__(self, positions: Ints) -> Rows:
        frame = self.frame.iloc[positions].reset_index(drop=True)
        return replace(self, frame=frame, place=lambda row: self.place(int(positions[row])))

    def with_numbers(self, names: Iterable[str]) -> Rows:
        """The rows with these columns as floats; a SettingsError if a value is no number."""
        found = {name: numbers(self.column(name), A_NUMBER) for name in names}
        return replace(self, frame=self.frame.assign(**found))

    def lacking(self, names: list[str]) -> tuple[Bools, str]:
        """Rows, bool [n], in which one of these columns is empty, and a sentence about them; a SettingsError if all are."""
        empty = {name: self.frame[name].isna().to_numpy(dtype=np.bool_) for name in names}
        gaps = np.any(list(empty.values()), axis=0)
        if gaps.all():
            raise SettingsError(f"{self.place(0)}: no row has all of {', '.join(names)}")
        shown = [
            f"{name} is empty in {lack.sum():,}, first {self.place(int(lack.argmax()))}"
            for name, lack in empty.items()
            if lack.any()
        ]
        return gaps, f"{gaps.sum():,} of {len(gaps):,} rows are left out (data.unlabeled: drop): {'; '.join(shown)}"

    def doubled(self, train: Ints, test: Ints) -> int:
        """How many of the rows at positions ``test`` equal one of those at ``train`` in every column."""
        content = pd.util.hash_pandas_object(self.frame, index=False, categorize=False).to_numpy()
        return int(np.isin(content[test], content[train]).sum())

    def doubtful(self, names: Iterable[str]) -> list[str]:
        """What may be wrong with the names in these columns, a sentence each: they are nearly equal, or mean missing values."""
        sentences = []
        for column in names:
            counts = Counter[str]()
            for value, count in self.frame[column].value_counts().items():
                counts[name_of(value)] += count
            if groups := near_equal(counts):
                more = f", and {len(groups) - _SHOWN:,} more groups" if len(groups) > _SHOWN else ""
                sentences.append(f"{column}: read as different names: {', '.join(groups[:_SHOWN])}{more}")
            if words := sorted(MISSING_NUMBERS & counts.keys()):
                shown = ", ".join(f"{word!r} ({counts[word]:,} rows)" for word in words)
                sentences.append(
                    f"{column}: read as names: {shown}; list them in data.missing if they are missing values"
                )
        return sentences


_OTHER: Any = (list, dict, tuple, set, bytes, np.ndarray)
