"""A table of the user's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
import pandas as pd
import torch
from pydantic import Field, model_validator
from torch import Tensor

from fedtide.adapters.columns import classes, clients, is_numeric, numbers, origins_of, times
from fedtide.adapters.encoding import Encoding, Place
from fedtide.core.array_types import Ints
from fedtide.core.errors import SettingsError
from fedtide.core.plugins import OMIT_DEFAULT
from fedtide.data._tables import column_of, place_in, read_table, require
from fedtide.data.base import DatasetPlugin, DatasetSettings
from fedtide.settings.scores import TaskName
from fedtide.world.dataset import Dataset
from fedtide.world.split import SplitSettings, period_of, split_samples


def read_rows(path: Path) -> tuple[pd.DataFrame, Place]:
    """The rows of a file, and where each is found in it, for errors.

    Raises:
        SettingsError: it is no readable table, or has no rows.
    """
    return read_table(path), place_in(path)


class Table(DatasetPlugin):
    """A CSV or Parquet file with a label (or numbers) per row, and optionally who made a row (its client) and when.

    Numeric features are standardised, categorical ones become indicators. Means, deviations and categories are learnt from
    the training rows of the first period of ``split`` alone. A missing number becomes the mean, with an indicator of its own
    where numbers are missing in those rows; a missing category is a category; an unknown category is none of them.
    Classes are all labels in the file, unless ``classes`` lists them. Targets of a regression are numbers, used as they are
    but for ``target_scale``; ``labels`` names several targets, or the columns of 0 and 1 of a multilabel task. Rows may be in
    any order. Equal files give equal runs: a run on a changed file is another run.
    """

    class Settings(DatasetSettings):
        name: str = "table"
        file: str = Field("table.csv", description="path of the file: .csv (also .csv.gz) or .parquet")
        task: Annotated[TaskName, OMIT_DEFAULT] = Field(
            "classification", description="what is learnt; has to be that of the objective"
        )
        label: str = Field("label", description="column of the labels: integers or names; regression: numbers")
        labels: Annotated[tuple[str, ...], OMIT_DEFAULT] = Field(
            (), description="instead of `label`: columns of several targets (regression), or of 0 and 1 (multilabel)"
        )
        target_scale: Annotated[float, OMIT_DEFAULT] = Field(
            1.0, gt=0, description="regression: unit of loss and mean absolute error, by which targets are divided"
        )
        client: str | None = Field(None, description="column of the clients; null: clients are unknown")
        time: str | None = Field(None, description="column of the times: integers or ISO dates; null: unknown")
        unit: str = Field("s", description="unit of integer times; s: seconds since 1970")
        numeric: tuple[str, ...] | Literal["others"] = Field(
            "others", description="numeric features; others: all further columns of numbers"
        )
        categorical: tuple[str, ...] | Literal["others"] = Field(
            "others", description="categorical features; others: all further columns of text"
        )
        classes: tuple[str, ...] = Field((), description="all classes, in order; default: the labels in the file")
        split: SplitSettings = Field(SplitSettings(), description="which rows are test samples")

        @model_validator(mode="after")
        def _fit_the_task(self) -> Self:
            if self.labels and self.task == "classification":
                raise SettingsError("labels lists several columns, classification has one: use label, or another task")
            if not self.labels and self.task == "multilabel":
                raise SettingsError("task = multilabel needs labels: the columns of 0 and 1")
            if self.classes and self.task != "classification":
                raise SettingsError(f"classes is for task classification; task {self.task} has none")
            if self.target_scale != 1 and self.task != "regression":
                raise SettingsError(f"target_scale is for task regression, not {self.task}")
            if twice := [name for place, name in enumerate(self.labels) if name in self.labels[:place]]:
                raise SettingsError(f"labels lists {twice[0]!r} twice")
            return self

        @property
        def targets(self) -> tuple[str, ...]:
            return self.labels or (self.label,)

    settings: Settings

    def files(self) -> tuple[Path, ...]:
        return (Path(self.settings.file),)

    def read(self, raw: Path) -> Dataset:
        """Features float32 [n, features]; nothing is read from ``raw``."""
        chosen, path = self.settings, Path(self.settings.file)
        frame = read_table(path)
        numeric, categorical = self._features(frame, path)
        labels, groups, outputs = self._labels(frame, path)
        client, names = clients(column_of(frame, path, chosen.client)) if chosen.client else (None, ())
        time = times(column_of(frame, path, chosen.time)) if chosen.time else None
        period = period_of(chosen.split, time, len(frame), chosen.unit)
        train, test = split_samples(chosen.split, groups if client is None else client, period, time)
        if not len(test) or not len(train):
            raise SettingsError(f"{path}: {len(frame)} rows are too few for data.split.share = {chosen.split.share:g}")
        fit = np.zeros(len(frame), dtype=np.bool_)
        fit[train] = period[train] == period[train].min()
        encoding = Encoding.fit(
            *(frame, numeric, categorical, fit),
            outputs=outputs,
            task=chosen.task,
            scale=chosen.target_scale,
            place=place_in(path),
        )
        inputs = encoding.apply(frame, place_in(path))
        origins = origins_of(client, time, (train, test), names, chosen.unit)
        parts = ((inputs[part], labels[part]) for part in (train, test))
        num_classes = len(outputs) if chosen.task == "classification" else 1
        return self.dataset("vector", parts, num_classes, origins=origins, task=chosen.task, encoding=encoding)

    def _labels(self, frame: pd.DataFrame, path: Path) -> tuple[Tensor, Ints, tuple[str, ...]]:
        """Labels of all rows, the class of each (0 where there are none), and names of the classes, labels or targets."""
        chosen = self.settings
        if chosen.task == "classification":
            classes_, names = classes(column_of(frame, path, chosen.label), chosen.classes)
            if len(names) < 2:
                raise SettingsError(f"{path}: column {chosen.label!r} has one value only, {names[0]!r}")
            return torch.tensor(classes_), classes_, names
        found = []
        for name in chosen.targets:
            column = column_of(frame, path, name)
            values = numbers(column).to_numpy()
            if chosen.task == "multilabel":
                column.refuse((values != 0) & (values != 1), "0 or 1")
            column.refuse(~np.isfinite(values), "a number")
            found.append(values / chosen.target_scale)
        targets = torch.from_numpy(np.stack(found, axis=1).astype(np.float32))
        return targets, np.zeros(len(frame), dtype=np.int64), chosen.targets

    def _features(self, frame: pd.DataFrame, path: Path) -> tuple[list[str], list[str]]:
        """Names of the numeric and of the categorical columns."""
        chosen = self.settings
        single = {"client": chosen.client, "time": chosen.time}
        lists = {
            key: () if (given := getattr(chosen, key)) == "others" else given for key in ("numeric", "categorical")
        }
        uses = [(column, "labels" if chosen.labels else "label") for column in chosen.targets]
        uses += [(column, key) for key, column in single.items() if column]
        uses += [(column, key) for key, columns in lists.items() for column in columns]
        require(frame, path, dict(uses))
        for key, columns in lists.items():
            if used := [column for column in chosen.targets if column in columns]:
                raise SettingsError(f"data.{key}: {used[0]!r} is {'a label' if chosen.labels else 'the label'}")
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
