"""A table of the user's."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import pandas as pd
import torch
from pydantic import Field, model_validator
from torch import Tensor

from fedtide.core.array_types import Bools, Ints
from fedtide.core.errors import SettingsError
from fedtide.core.plugins import OMIT_DEFAULT
from fedtide.settings.scores import TaskName
from fedtide.world.adapters.columns import (
    classes,
    clients,
    floats_of,
    is_numeric,
    numbers,
    origins_of,
    refuse_grouped_numbers,
)
from fedtide.world.adapters.dates import joined, times
from fedtide.world.adapters.encoding import Encoding, Numeric, Place
from fedtide.world.adapters.reading import WRITTEN, FileSettings, Name, read_table
from fedtide.world.adapters.rows import Rows
from fedtide.world.data._tables import windows
from fedtide.world.data.base import DatasetPlugin
from fedtide.world.dataset import Dataset, Scales
from fedtide.world.splits.split import SplitSettings, period_of, split_samples

logger = logging.getLogger(__name__)

_Scale = Annotated[float, Field(gt=0)]
_UNLIKE = 100  # times that the deviation of a target may exceed another's before some are hardly learned
_FEW = 100  # classes that any table may have
_SMALL = 10  # times as many rows on average make a first period one that says little about features
_NUMBERS = "; if these are numbers to predict, set data.task: regression (and objective: mean_squared_error)"


class Table(DatasetPlugin):
    """A CSV, Parquet or Feather file with a label (or numbers) per row, and optionally who made a row (its client) and when.

    Numeric features are standardized, categorical ones become indicators. Means, deviations and categories are learned from
    the training rows of the first period of ``split`` alone. A missing number becomes the mean, with an indicator of its own
    where numbers are missing in those rows; a missing category is a category; an unknown category is none of them. Owners,
    labels and categories are the texts of the file, see :func:`fedtide.world.adapters.names.name_of`. A column
    with more than ``max_categories`` categories in those rows is refused, or hashed into ``buckets`` features.
    Classes are all labels in the file, unless ``classes`` lists them. Targets of a regression are standardized like features,
    each by itself, or divided by ``target_scale``; ``labels`` names several targets, or the columns of 0 and 1 of a multilabel
    task. Equal rows give equal runs, in any order of rows and of columns (but for listed ones): a run on changed rows is
    another run.

    With ``window`` a sample is a series [features, window]: consecutive rows of one client, by time. Label, time and period
    are those of its last row. Clients with fewer rows have no samples.
    """

    class Settings(FileSettings):
        name: str = "table"
        file: str = Field("table.csv", description="path of the file: .csv (also .csv.gz or .xz), .parquet or .feather")
        task: Annotated[TaskName, OMIT_DEFAULT] = Field(
            "classification", description="learning task; must match the objective"
        )
        label: str = Field("label", description="label column: integers or names; regression: numbers")
        labels: Annotated[tuple[str, ...], OMIT_DEFAULT] = Field(
            (), description="instead of `label`: columns of several targets (regression), or of 0 and 1 (multilabel)"
        )
        target_scale: Annotated[_Scale | tuple[_Scale, ...] | None, OMIT_DEFAULT] = Field(
            None,
            description="regression: divisor of the targets, or a list with one for each, the unit of loss and mean absolute "
            "error; null: each target is standardized, and the error is in its own unit",
        )
        client: str | None = Field(None, description="column of client IDs; null: unknown")
        time: str | tuple[str, ...] | None = Field(
            None,
            description="time column: integers or dates; or a list of columns that together are a date, such as [year, month, "
            "day, hour] or [date, hour], which are features only if they are listed as such; null: unknown",
        )
        unit: str = Field(
            "s", description="unit of integer times; s, ms, us or ns since 1970, which become seconds; or another"
        )
        numeric: tuple[str, ...] | Literal["others"] = Field(
            "others", description="numeric features; others: all further columns of numbers"
        )
        categorical: tuple[str, ...] | Literal["others"] = Field(
            "others", description="categorical features; others: all further columns of text"
        )
        max_categories: Annotated[int, OMIT_DEFAULT] = Field(
            100, ge=1, description="limit on one-hot categories per column"
        )
        buckets: Annotated[int | None, OMIT_DEFAULT] = Field(
            None, ge=2, description="hashed features of a column with more categories; null: an error"
        )
        window: Annotated[int | None, OMIT_DEFAULT] = Field(
            None, ge=2, description="consecutive rows of a client that are one sample, a series; null: a row is one"
        )
        stride: Annotated[int, OMIT_DEFAULT] = Field(1, ge=1, description="stride of a client's windows, in rows")
        unlabeled: Annotated[Literal["refuse", "drop"], OMIT_DEFAULT] = Field(
            "refuse", description="rows whose label, client or time is empty: refuse: an error; drop: they are left out"
        )
        classes: tuple[Name, ...] = Field((), description="all classes, in order; default: the labels in the file")
        split: SplitSettings = Field(SplitSettings(), description="which rows are test samples")

        @model_validator(mode="after")
        def _fit_the_task(self) -> Self:
            if not self.labels and self.task == "multilabel":
                raise SettingsError("task = multilabel requires labels, the columns of 0 and 1")
            tasks = {
                "labels": ("regression", "multilabel"),
                "classes": ("classification",),
                "target_scale": ("regression",),
            }
            for key, of in tasks.items():
                if getattr(self, key) != type(self).model_fields[key].default and self.task not in of:
                    raise SettingsError(f"{key} is not supported with task {self.task}, but with {' and '.join(of)}")
            if self.divisors and len(self.divisors) != len(self.targets):
                raise SettingsError(f"target_scale has {len(self.divisors)} values, labels {len(self.targets)}")
            for name in (names := [name for name, _ in self.roles]):
                if names.count(name) > 1:
                    keys = " and ".join(dict.fromkeys(key for other, key in self.roles if other == name))
                    raise SettingsError(f"{keys}: column {name!r} is given twice; each needs its own")
            if self.timezone and not self.time:
                raise SettingsError(f"timezone = {self.timezone} requires time, the column of times")
            if self.window and not self.time:
                raise SettingsError(f"window = {self.window} requires time, the column that orders the rows")
            if self.stride > 1 and not self.window:
                raise SettingsError(f"stride = {self.stride} requires a window")
            return self

        @property
        def targets(self) -> tuple[str, ...]:
            return self.labels or (self.label,)

        @property
        def divisors(self) -> tuple[float, ...]:
            """Of the targets, each; none if they are standardized."""
            scale = self.target_scale or ()
            return scale if isinstance(scale, tuple) else (scale,) * len(self.targets)

        @property
        def times(self) -> tuple[str, ...]:
            """Columns of the time."""
            return (self.time,) if isinstance(self.time, str) else self.time or ()

        @property
        def roles(self) -> list[tuple[str, str]]:
            """Columns that are no features by default, and the settings that name them."""
            named = {"labels" if self.labels else "label": self.targets, "client": (self.client,), "time": self.times}
            return [(name, key) for key, names in named.items() for name in names if name]

    settings: Settings

    @property
    def client_column(self) -> str | None:
        return self.settings.client

    def files(self) -> tuple[Path, ...]:
        return (Path(self.settings.file),)

    def read(self, raw: Path) -> Dataset:
        """Features float32 [n, features], or series [n, features, window]; nothing is read from ``raw``."""
        chosen = self.settings
        rows = self._labeled(read_table(Path(chosen.file), chosen))
        numeric, categorical = self._features(rows)
        rows = rows.with_numbers(numeric)
        names_in = [chosen.label] if chosen.task == "classification" else []
        names_in += [*([chosen.client] if chosen.client else []), *categorical]
        if said := [*rows.notes, *rows.doubtful(names_in)]:
            logger.warning("%s: %s", rows.path, "; ".join(said))
        labels, classes_, outputs = self._labels(rows)
        client, names = clients(rows.column(chosen.client)) if chosen.client else (None, ())
        time, unit = None, chosen.unit
        if chosen.time:
            column, date_format = joined([rows.column(name) for name in chosen.times], chosen.date_format, "data.")
            time, unit = times(column, unit, date_format, "data.", chosen.timezone)
        # All that follows sees the rows in an order that does not depend on that of the file.
        order = rows.order(client, time, numeric, categorical, labels)
        rows, labels, classes_ = rows[order], labels[order], classes_[order]
        client, time = (None if values is None else values[order] for values in (client, time))
        seen = np.arange(len(order))[:, None]  # rows of each sample; the last one has its time and client
        if chosen.window:
            seen = windows(client, len(order), chosen.window, chosen.stride)
            if not len(seen):
                raise SettingsError(f"{rows.path}: data.window = {chosen.window}: no client has this many rows")
        last = seen[:, -1]
        labels, classes_ = labels[last], classes_[last]
        time = None if time is None else time[last]
        if client is not None:
            present, numbered = np.unique(client[last], return_inverse=True)
            client, names = numbered.astype(np.int64), tuple(names[number] for number in present)
        period = period_of(chosen.split, time, len(last), unit)
        train, test = split_samples(chosen.split, classes_ if client is None else client, period, time)
        fit = np.zeros(len(order), dtype=np.bool_)
        first = train[period[train] == period[train].min()]
        fit[seen[first]] = True
        sizes = np.unique(period[train], return_counts=True)[1]
        if sizes[0] * _SMALL < sizes.mean():
            found = f"by the {sizes[0]:,} training rows of the first period, where periods have {sizes.mean():,.0f} on average"
            logger.warning("%s: features are scaled %s (data.split.period: %s)", rows.path, found, chosen.split.period)
        if twice := rows[last].doubled(train, test):
            found = f"{twice:,} of {len(test):,} test rows equal a training row in every column"
            logger.warning("%s: %s; scores are too good if a row is there twice by mistake", rows.path, found)
        scales: Scales = tuple((0.0, scale) for scale in chosen.divisors)
        if standardized := chosen.task == "regression" and not scales:
            learned = [Numeric.fit(rows.column(name), fit) for name in outputs]
            scales = tuple((each.mean, each.deviation) for each in learned)
            columns = [each.apply(rows.column(name)) for each, name in zip(learned, outputs, strict=True)]
            labels = torch.from_numpy(np.concatenate(columns, axis=1))[last]
        elif scales and (spread := labels[first].std(0, correction=0)).min() * _UNLIKE < spread.max():
            unlike = (
                "over target_scale, targets differ in scale by more than 100; leave it out, or list a number for each"
            )
            logger.warning("%s: %s", rows.path, unlike)
        encoding = Encoding.fit(
            *(rows.frame, numeric, categorical, fit),
            outputs=outputs,
            task=chosen.task,
            scale=scales if standardized or len(set(scales)) > 1 else max(chosen.divisors, default=1.0),
            buckets=dict.fromkeys(self._hashed(rows, categorical, fit), chosen.buckets or 0),
            place=rows.place,
        )
        inputs = encoding.apply(rows.frame, rows.place)
        if chosen.window:
            inputs = inputs[torch.from_numpy(seen)].transpose(1, 2)
        return self.dataset(
            "series" if chosen.window else "vector",
            ((inputs[part].contiguous(), labels[part]) for part in (train, test)),
            len(outputs) if chosen.task == "classification" else 1,
            origins=origins_of(client, time, (train, test), names, unit),
            task=chosen.task,
            standardized=scales if standardized else (),
            encoding=None if chosen.window else encoding,  # a final model predicts single rows
        )

    def _labeled(self, rows: Rows) -> Rows:
        """The rows that have a label, a client and a time, of those that have columns."""
        roles, chosen = dict(self.settings.roles), self.settings
        rows.require(roles)
        gaps, described = rows.lacking(list(roles))
        if chosen.unlabeled == "drop" and gaps.any():
            logger.warning("%s: %s", rows.path, described)
            return rows[np.flatnonzero(~gaps)]
        for name, key in roles.items():
            label = "a label" if chosen.task == "classification" else "a number"
            wanted = f"{label if key[0] == 'l' else f'a {key}'} (data.unlabeled: drop leaves such rows out)"
            rows.column(name).refuse(rows.frame[name].isna(), wanted)
        return rows

    def _labels(self, rows: Rows) -> tuple[Tensor, Ints, tuple[str, ...]]:
        """Labels of all rows, the class of each (0 where there are none), and names of the classes, labels or targets."""
        chosen = self.settings
        if chosen.task == "classification":
            column = rows.column(chosen.label)
            if not chosen.classes:
                floats, wrong = floats_of(column)
                column.refuse((floats % 1 > 0) & ~wrong.any(), f"an integer or a name{_NUMBERS}")
            classes_, names = classes(column, chosen.classes)
            if len(names) < 2:
                raise SettingsError(f"{rows.path}: column {chosen.label!r} has a single value, {names[0]!r}")
            if not chosen.classes and len(names) > max(_FEW, len(classes_) // 2):
                found = f"column {chosen.label!r} has {len(names):,} classes in {len(classes_):,} rows"
                raise SettingsError(f"{rows.path}: {found}; list them in data.classes{_NUMBERS}")
            return torch.tensor(classes_), classes_, names
        targets = []
        for name in chosen.targets:
            column = rows.column(name)
            values = numbers(column).to_numpy()
            if chosen.task == "multilabel":
                column.refuse((values != 0) & (values != 1), "0 or 1")
            column.refuse(~np.isfinite(values), "a number")
            targets.append(values)
        stacked = torch.from_numpy((np.stack(targets, axis=1) / (chosen.divisors or 1.0)).astype(np.float32))
        return stacked, np.zeros(len(rows.frame), dtype=np.int64), chosen.targets

    def _features(self, rows: Rows) -> tuple[list[str], list[str]]:
        """Names of the numeric and of the categorical columns."""
        chosen = self.settings
        lists = {key: getattr(chosen, key) for key in ("numeric", "categorical")}
        lists = {key: () if columns == "others" else columns for key, columns in lists.items()}
        uses = chosen.roles + [(column, key) for key, columns in lists.items() for column in columns]
        rows.require(dict(uses))
        for key, columns in lists.items():
            if used := [column for column in chosen.targets if column in columns]:
                raise SettingsError(f"data.{key}: {used[0]!r} is {'a label' if chosen.labels else 'the label'}")
        if both := set(lists["numeric"]) & set(lists["categorical"]):
            raise SettingsError(f"data.categorical: {min(both)!r} is also listed in data.numeric")
        others = sorted(column for column in rows.frame.columns if column not in dict(uses))
        of_numbers = [column for column in others if is_numeric(rows.column(column))]
        numeric = of_numbers if chosen.numeric == "others" else lists["numeric"]
        text = [column for column in others if column not in of_numbers]
        categorical = text if chosen.categorical == "others" else lists["categorical"]
        if not numeric and not categorical:
            raise SettingsError(f"{rows.path}: no column is left for features")
        if chosen.categorical == "others":
            for column in text:
                refuse_grouped_numbers(rows.column(column))
        return list(numeric), list(categorical)

    def _hashed(self, rows: Rows, categorical: list[str], fit: Bools) -> list[str]:
        """Categorical columns with more values in the rows to learn from than have features of their own."""
        chosen = self.settings
        counts = {name: rows.column(name).values[fit].nunique() for name in categorical}
        many = [name for name, count in counts.items() if count > chosen.max_categories]
        if many and chosen.buckets is None:
            raise SettingsError(
                f"{rows.path}: column {many[0]!r} has {counts[many[0]]:,} categories in the rows to learn features from, "
                f"data.max_categories = {chosen.max_categories}; raise it, hash such columns (data.buckets: 64), or name the "
                "columns to use in data.categorical"
            )
        return many


def read_rows(path: Path, data: Mapping[str, Any], numeric: Sequence[str] = ()) -> tuple[pd.DataFrame, Place]:
    """The rows of a file that is written as the table of a run, whose dataset has settings ``data``, and where each is found.

    As :func:`read_table`, but the columns ``numeric``, those that there are, are floats.
    """
    rows = read_table(path, FileSettings(name="table", **{key: data[key] for key in WRITTEN if key in data}))
    for note in rows.notes:
        logger.warning("%s: %s", path, note)
    return rows.with_numbers(name for name in numeric if name in rows.frame).frame, rows.place
