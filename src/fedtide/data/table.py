"""A table of the user's."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import torch
from pydantic import Field

from fedtide.adapters.columns import classes, clients, is_numeric, numbers, times
from fedtide.core.errors import SettingsError
from fedtide.data._features import encode
from fedtide.data._tables import column_of, read_table, require
from fedtide.data.base import DatasetPlugin, DatasetSettings
from fedtide.world.dataset import Dataset, Origins
from fedtide.world.split import SplitSettings, period_of, split_samples


class Table(DatasetPlugin):
    """A CSV or Parquet file with a label per row, and optionally who made a row (its client) and when.

    Numeric features are standardised, categorical ones become indicators. Means, deviations and categories are learnt from
    the training rows of the first period of ``split`` alone. A missing number becomes the mean, with an indicator of its own
    where numbers are missing in those rows; a missing category is a category; an unknown category is none of them.
    Classes are all labels in the file, unless ``classes`` lists them. Rows may be in any order. Equal files give equal runs: a
    run on a changed file is another run.
    """

    class Settings(DatasetSettings):
        """Settings of a table."""

        name: str = "table"
        file: str = Field("table.csv", description="path of the file: .csv (also .csv.gz) or .parquet")
        label: str = Field("label", description="column of the labels: integers or names")
        client: str | None = Field(None, description="column of the clients; null: clients are unknown")
        time: str | None = Field(
            None, description="column of the times: integers or ISO dates; null: times are unknown"
        )
        unit: str = Field("s", description="unit of integer times; s: seconds since 1970")
        numeric: tuple[str, ...] | Literal["others"] = Field(
            "others", description="numeric features; others: all further columns of numbers"
        )
        categorical: tuple[str, ...] | Literal["others"] = Field(
            "others", description="categorical features; others: all further columns of text"
        )
        classes: tuple[str, ...] = Field((), description="all classes, in order; default: the labels in the file")
        split: SplitSettings = Field(SplitSettings(), description="which rows are test samples")

    settings: Settings

    def files(self) -> tuple[Path, ...]:
        """The file."""
        return (Path(self.settings.file),)

    def read(self, raw: Path) -> Dataset:
        """Features float32 [n, features]; nothing is read from ``raw``."""
        chosen, path = self.settings, Path(self.settings.file)
        frame = read_table(path)
        numeric, categorical = self._features(frame, path)
        labels, classes_ = classes(column_of(frame, path, chosen.label), chosen.classes)
        if len(classes_) < 2:
            raise SettingsError(f"{path}: column {chosen.label!r} has one value only, {classes_[0]!r}")
        client, names = clients(column_of(frame, path, chosen.client)) if chosen.client else (None, ())
        time = times(column_of(frame, path, chosen.time)) if chosen.time else None
        frame = frame.assign(**{column: numbers(column_of(frame, path, column)) for column in numeric})
        period = period_of(chosen.split, time, len(frame), chosen.unit)
        train, test = split_samples(chosen.split, labels if client is None else client, period, time)
        if not len(test) or not len(train):
            raise SettingsError(f"{path}: {len(frame)} rows are too few for data.split.share = {chosen.split.share:g}")
        fit = np.zeros(len(frame), dtype=np.bool_)
        fit[train] = period[train] == period[train].min()
        inputs, _ = encode(frame, numeric, categorical, fit)
        origins = Origins(
            train_client=None if client is None else client[train],
            test_client=None if client is None else client[test],
            train_time=None if time is None else time[train],
            test_time=None if time is None else time[test],
            clients=names,
            unit=chosen.unit,
        )
        return Dataset(
            name="table",
            kind="vector",
            train_inputs=inputs[train],
            train_labels=torch.from_numpy(labels[train]),
            test_inputs=inputs[test],
            test_labels=torch.from_numpy(labels[test]),
            num_classes=len(classes_),
            digest="",
            origins=origins,
        )

    def _features(self, frame: pd.DataFrame, path: Path) -> tuple[list[str], list[str]]:
        """Names of the numeric and of the categorical columns.

        Raises:
            SettingsError: a column does not exist, is used twice, or there is none.
        """
        chosen = self.settings
        single = {"label": chosen.label, "client": chosen.client, "time": chosen.time}
        lists = {
            key: () if (given := getattr(chosen, key)) == "others" else given for key in ("numeric", "categorical")
        }
        uses = [(column, key) for key, column in single.items() if column]
        uses += [(column, key) for key, columns in lists.items() for column in columns]
        require(frame, path, dict(uses))
        for key, columns in lists.items():
            if chosen.label in columns:
                raise SettingsError(f"data.{key}: {chosen.label!r} is the label")
        if both := set(lists["numeric"]) & set(lists["categorical"]):
            raise SettingsError(f"data.categorical: {min(both)!r} is numeric already")
        others = [column for column in frame.columns if column not in dict(uses)]
        of_numbers = [column for column in others if is_numeric(column_of(frame, path, column))]
        numeric = of_numbers if chosen.numeric == "others" else lists["numeric"]
        text = [column for column in others if column not in of_numbers]
        categorical = text if chosen.categorical == "others" else lists["categorical"]
        if not numeric and not categorical:
            raise SettingsError(f"{path}: no column is left for features")
        return list(numeric), list(categorical)
