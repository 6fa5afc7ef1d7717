"""An experiment file under one profile: the cells of a published table and the runs behind them.

The file is a params file with one more block, ``experiment``. The settings of a cell are mappings merged in this order:
the file, ``profiles/<profile>.yaml`` beside it, the file's own ``experiment.profiles.<profile>``, ``--set``, and the
cell's place in ``experiment.grid``, axis by axis.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator
from yaml import YAMLError

from fedtide.core.errors import SettingsError, nearest
from fedtide.core.plugins import SettingsModel
from fedtide.core.storage.files import short_hash
from fedtide.settings.params import Params, parse
from fedtide.settings.reading.overrides import apply_overrides, deep_merge, override
from fedtide.settings.reading.yaml_files import read_mapping, read_value
from fedtide.settings.run import RunSettings
from fedtide.settings.scores import RECORDED, Score
from fedtide.studies.reproduce.measures import Measure, TransitionAccuracy
from fedtide.studies.reproduce.published import Number, read_published

BLOCK = "experiment"
PROFILES = "profiles"


class Axis(SettingsModel):
    """One axis of the worlds of a table: a setting and its values, or named groups of settings."""

    key: str | None = Field(None, description="dotted setting")
    values: tuple[bool | int | float | str, ...] = Field((), description="its values")
    groups: dict[str, dict[str, Any]] = Field({}, description="instead: name -> settings to merge in")

    @model_validator(mode="after")
    def _either(self) -> Axis:
        if bool(self.groups) == bool(self.key and self.values):
            raise SettingsError("requires either key and values, or groups")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.groups) or tuple(map(str, self.values))

    def apply(self, raw: dict[str, Any], name: str) -> dict[str, Any]:
        if self.key is None:
            return deep_merge(raw, self.groups[name])
        override(raw, f"{self.key}={name}")
        return raw


class Source(SettingsModel):
    """Where the numbers were published."""

    paper: str = Field(description="the paper")
    table: str = Field(description="its table or figure")


class TableSettings(SettingsModel):
    """The block ``experiment``: a published table, beside the settings of its runs."""

    title: str = Field(description="what the table shows")
    source: Source = Field(description="where the numbers were published")
    note: str = Field("", description="what a reader needs to know")
    published: str | None = Field(
        None,
        description="CSV file with the published numbers, beside this file; its rows are the cells. Default: the whole grid",
    )
    profiles: dict[str, dict[str, Any]] = Field(
        min_length=1, description="readings of the paper, the default first; each adds settings to profiles/<name>.yaml"
    )
    grid: dict[str, Axis] = Field({}, description="columns of the table that vary the world")
    substitutes: dict[str, dict[str, str]] = Field(
        {}, description="method -> algorithm -> label of the algorithm to run in its place"
    )
    transitions: dict[str, int] = Field(min_length=1, description="name of a transition -> session it leads to, from 1")
    measure: Measure = Field(TransitionAccuracy(), description="what is measured in that session")


class Entry(SettingsModel):
    """Cells of one table; ``minutes``: the expected time of all its runs, one after the other."""

    name: str
    profile: str | None = None
    only: tuple[str, ...] = ()
    minutes: float | None = Field(None, gt=0)


class _Order(SettingsModel):
    entries: tuple[Entry, ...] = Field(min_length=1)


def read_order(path: Path) -> tuple[Entry, ...]:
    """What the YAML list of an order file names, in its order; a SettingsError if it is something else."""
    try:
        raw = read_value(path.read_text(encoding="utf-8"))
    except (OSError, YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise SettingsError(f"--order {path}: {' '.join(str(error).split())}") from None
    order: _Order = parse(_Order, {"entries": raw}, str(path))
    return order.entries


@dataclass(frozen=True)
class Cell:
    """A cell of the table: values of the grid's axes, algorithm, transition and method (initializer)."""

    world: tuple[str, ...]
    algorithm: str
    transition: str
    method: str

    @property
    def values(self) -> tuple[str, ...]:
        """In the order of :attr:`Recipe.columns`."""
        return (*self.world, self.algorithm, self.transition, self.method)


def _read(path: Path) -> tuple[dict[str, Any], TableSettings]:
    raw = read_mapping(path)
    if BLOCK not in raw:
        raise SettingsError(f"{path}: no block {BLOCK!r}; pass a file with settings only to --params")
    table: TableSettings = parse(TableSettings, raw[BLOCK], f"{path.name}: {BLOCK}")
    return raw, table


def profiles(path: Path) -> list[str]:
    """Names of the profiles of an experiment, the default first."""
    return list(_read(path)[1].profiles)


class Recipe:
    """An experiment under one profile.

    Args:
        path: the experiment file. profile: one of its profiles; None for the first.
        overrides: ``a.b=value``, for the experiment's block too (``experiment.transitions={...}``).

    Attributes:
        name, profile, overrides: as given. table: the block. columns: names of a cell's values.
        cells: of the table, in order. published: their published numbers. loggers: Lightning loggers of the runs.
        remarks: see :class:`Params`.

    Raises:
        SettingsError: bad settings, in one line.
    """

    def __init__(self, path: Path, profile: str | None = None, overrides: Iterable[str] = ()) -> None:
        self.path, self.name, self.overrides = path, path.stem, tuple(overrides)
        raw, table = _read(path)
        self.profile = next(iter(table.profiles)) if profile is None else profile
        if self.profile not in table.profiles:
            raise SettingsError(nearest(f"{path.name} has no profile {self.profile!r}", self.profile, table.profiles))
        shared = path.parent / PROFILES / f"{self.profile}.yaml"
        if not shared.is_file():
            raise SettingsError(f"{path.name}: profile {self.profile!r} requires the file {shared}")
        raw = deep_merge(deep_merge(raw, read_mapping(shared)), table.profiles[self.profile])
        self.remarks = apply_overrides(raw, self.overrides, path.name)
        self._source = f"{path.name}, profile {self.profile}"
        self.table = parse(TableSettings, raw.pop(BLOCK), f"{self._source}: {BLOCK}")
        self._raw = raw
        self.columns = (*self.table.grid, "algorithm", "transition", "method")
        self._refuse_overridden_axes()
        axes = [axis.names for axis in self.table.grid.values()]
        self._worlds = {world: self._params(world) for world in itertools.product(*axes)}
        first = next(iter(self._worlds.values()))
        compare = first.experiment.compare
        self.compare, self.seeds, self.allow_failures = compare, compare.seeds, compare.allow_failures
        self.loggers = first.experiment.tracking.loggers
        known = [*axes, compare.algorithms, tuple(self.table.transitions), compare.initializers]
        self.published: dict[tuple[Cell, str], Number] = {}
        self.cells = [Cell(world, *rest) for world in self._worlds for rest in itertools.product(*known[-3:])]
        if self.table.published is not None:
            by_column = dict(zip(self.columns, known, strict=True))
            rows = read_published(path.parent / self.table.published, by_column, self.score.name)
            self.published = {
                (cell, quantity): value
                for cell in self.cells
                for (values, quantity), value in rows.items()
                if all(given is None or given == own for given, own in zip(values, cell.values, strict=True))
            }
            named = {cell for cell, _ in self.published}
            self.cells = [cell for cell in self.cells if cell in named]
        self._check_runs()

    def _refuse_overridden_axes(self) -> None:
        keys = {axis.key: name for name, axis in self.table.grid.items() if axis.key}
        for item in self.overrides:
            key = item.partition("=")[0].strip()
            if key in keys:
                raise SettingsError(f"--set {key}: set by the grid; choose cells with --only {keys[key]}=...")

    def _params(self, world: tuple[str, ...]) -> Params:
        raw = deep_merge(self._raw, {})
        for axis, name in zip(self.table.grid.values(), world, strict=True):
            raw = axis.apply(raw, name)
        return Params(raw, self._source)

    def runs(self, cell: Cell, seed: int) -> list[RunSettings]:
        """The run of a cell, followed by that of the reference if the measure needs one."""
        reference = self.table.measure.reference_run(cell.algorithm, cell.method)
        chosen = [(cell.algorithm, cell.method), *([reference] if reference else [])]
        labels = (self.table.substitutes.get(method, {}).get(algorithm, algorithm) for algorithm, method in chosen)
        return [self._run(cell.world, label, method, seed) for label, (_, method) in zip(labels, chosen, strict=True)]

    @functools.cache  # noqa: B019
    def _run(self, world: tuple[str, ...], label: str, method: str, seed: int) -> RunSettings:
        """Resolved once: who runs them tells equal settings by identity."""
        return self._worlds[world].run(label, method, seed)

    def _check_runs(self) -> None:
        for cell in self.cells:
            for settings in self.runs(cell, self.seeds[0]):
                measured = f"{self._source}: {BLOCK}.measure.metric = {self.score.name}"
                if not self.score.fits(settings.task):
                    recorded = ", ".join(RECORDED[settings.task])
                    raise SettingsError(f"{measured}: runs with objective {settings.objective.name} record {recorded}")
                wanted = self.score.metric
                if wanted is not None and wanted not in settings.evaluation.metrics:
                    raise SettingsError(f"{measured}: the runs do not record it; add {wanted} to evaluation.metrics")
                sessions = getattr(settings.scenario, "num_sessions", None)
                session = self.table.transitions[cell.transition]
                if sessions is not None and not 1 <= session <= sessions:
                    key = f"{BLOCK}.transitions.{cell.transition}"
                    raise SettingsError(f"{self._source}: {key} = {session} should be a session from 1 to {sessions}")

    @property
    def score(self) -> Score:
        return Score(self.table.measure.metric)

    @property
    def distinguishing(self) -> dict[str, int]:
        """Indices of the :attr:`columns` in which cells differ, by name; all columns for a single cell."""
        named = {name: place for place, name in enumerate(self.columns)}
        if len(self.cells) == 1:
            return named
        return {name: place for name, place in named.items() if len({cell.values[place] for cell in self.cells}) > 1}

    @functools.cache  # noqa: B019 a recipe lives as long as its command
    def identity(self, cell: Cell, seeds: tuple[int, ...] | None = None) -> str:
        """Hash (12 hex digits) of the settings of a cell's runs, by default of all seeds."""
        return short_hash([run.canonical() for seed in seeds or self.seeds for run in self.runs(cell, seed)])

    def heading(self, cell: Cell) -> str:
        """A cell in words: ``alpha=0.3 algorithm=fedavg``."""
        return " ".join(f"{name}={cell.values[place]}" for name, place in self.distinguishing.items())

    def select(self, filters: Iterable[str]) -> list[Cell]:
        """The cells that pass ``column=value[,value...]`` filters; all cells without a filter.

        Raises:
            SettingsError: a filter names an unknown column or value.
        """
        chosen = self.cells
        for item in filters:
            column, equals, text = (part.strip() for part in item.partition("="))
            if not equals or column not in self.columns:
                raise SettingsError(nearest(f"--only {item!r}: write column=value", column, self.columns))
            place, wanted = self.columns.index(column), [value.strip() for value in text.split(",")]
            known = {cell.values[place] for cell in self.cells}
            for value in wanted:
                if value not in known:
                    raise SettingsError(nearest(f"--only {item!r}: no cell with {column} {value!r}", value, known))
            chosen = [cell for cell in chosen if cell.values[place] in wanted]
        return chosen
