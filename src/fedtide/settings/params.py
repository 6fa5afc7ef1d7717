"""A params file, its overrides and labels, resolved into the settings of runs."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedtide.core import plugins
from fedtide.core.discovery.shipped import DEFAULTS
from fedtide.core.errors import SettingsError, nearest, one_line, shortened
from fedtide.core.plugins import SettingsModel
from fedtide.settings.choices import group_at
from fedtide.settings.experiment import RUN_KEYS, TABLES, Experiment
from fedtide.settings.reading.overrides import apply_overrides, merge_run
from fedtide.settings.reading.references import REFERENCES
from fedtide.settings.reading.yaml_files import read_mapping
from fedtide.settings.run import RunSettings, Seed

Place = tuple[int | str, ...]
"""The path of a setting."""

_NAMED = {"algorithm": "label", "initializer": "initializer_label"}
"""Settings with the labels of a run."""


def parse(
    model: type[SettingsModel],
    raw: Mapping[str, Any],
    source: str | Callable[[Place], str] = "settings",
) -> Any:
    """The settings that a plain mapping stands for.

    ``source`` is where it comes from, or a function from the path of a setting to where that comes from.

    Raises:
        SettingsError: one line: which key, which value, what is allowed.
    """
    try:
        return model.model_validate_json(json.dumps(raw), strict=True)
    except ValidationError as error:
        raise SettingsError(one_line(error, raw, source, partial(group_at, model, raw))) from None
    except (TypeError, RecursionError, ValueError) as error:
        where, cure = source if isinstance(source, str) else source(()), "use numbers, words, lists and mappings"
        raise SettingsError(f"{where}: {shortened(str(error))}; {cure}") from None


class Params:
    """A params file with overrides: validated once, resolved into runs.

    >>> params = Params({"algorithm": {"name": "fedprox", "mu": 0.1}, "compare": {"seeds": [0, 1]}})
    >>> params.run().algorithm.mu
    0.1
    >>> [(run.label, run.seed) for run in params.grid()]
    [('fedavg', 0), ('fedavg', 1)]

    Args:
        raw: content of the file; by default that of the default experiment, which an empty folder has.
        source, overrides: its name, and what of it was set on the command line, as ``a.b=value``, for messages.

    Attributes:
        remarks: what a user should know about how the settings were read, one line each.
    """

    def __init__(
        self, raw: Mapping[str, Any] | None = None, source: str = "params.yaml", overrides: Iterable[str] = ()
    ) -> None:
        self.raw = read_mapping(DEFAULTS) if raw is None else dict(raw)
        self.source, self.overrides = source, tuple(overrides)
        merged = self._merged(self.raw)
        experiment: Experiment = parse(Experiment, merged, self._origin)
        self._validated: dict[str, RunSettings] = {}  # by their text: labels may share them
        try:
            self.experiment = experiment.for_its_task()
        except SettingsError as error:
            raise SettingsError(f"{self._origin(('report', 'metric'), ('tune', 'metric'))}: {error}") from None
        compare = self.experiment.compare
        for label in dict.fromkeys([*self.experiment.algorithms, *compare.algorithms]):
            self.run(algorithm=label)
        for label in dict.fromkeys([*self.experiment.initializers, *compare.initializers]):
            self.run(initializer=label)
        instead = "of this file is used instead of the built-in reference"
        self.remarks = [
            f"{self.source}: algorithms.{label} {instead} (`fedtide show algorithm {label}`)"
            for label in dict.fromkeys([*compare.algorithms, self.experiment.label])
            if label in REFERENCES and "name" in self.experiment.algorithms.get(label, {})
        ]

    @staticmethod
    def read(path: str | Path | Mapping[str, Any], overrides: str | Iterable[str] = ()) -> Params:
        """Read a YAML file, or the same as a mapping, and apply ``a.b=value`` overrides (values are YAML).

        An override that chooses another plug-in drops the settings of the one in the file, with a line in ``remarks``.
        """
        overrides = (overrides,) if isinstance(overrides, str) else tuple(overrides)
        if isinstance(path, Mapping):
            raw, source = copy.deepcopy(dict(path)), "settings"
        elif not isinstance(path, str | os.PathLike):
            raise SettingsError(f"settings should be a file or a mapping, got {shortened(repr(path))}")
        elif (path := Path(path)).is_file():
            raw, source = read_mapping(path), path.name
        else:
            kind = f"{path} is a folder, not a settings file" if path.is_dir() else f"no settings file {path}"
            raise SettingsError(f"{kind}; give one with --params, or write one with `fedtide init`")
        if not raw and not overrides:
            raise SettingsError(f"{path} is empty; write `seed: 0` for a run with all defaults")
        remarks = apply_overrides(raw, overrides, source)
        params = Params(raw, source, overrides)
        params.remarks = [*remarks, *params.remarks]
        return params

    def _origin(self, *places: Place) -> str:
        """Where a setting with one of these paths comes from: ``--set`` with its text, or the file."""
        for item in reversed(self.overrides):
            keys = item.partition("=")[0].strip().split(".")
            for place in filter(None, places):  # a problem of a whole group may come from one of its keys
                if all(key == str(part) for key, part in zip(keys, place, strict=False)):
                    return f"--set {shortened(item)}"
        return self.source

    def _refuse_unknown(self, kind: str, label: str) -> None:
        """Refuse a label that is neither a plug-in nor an entry that names one."""
        folder, references = ("algorithms", REFERENCES) if kind == "algorithms" else ("initializers", {})
        table: Mapping[str, Any] = self.raw.get(kind) or {}
        known = {*plugins.names(folder), *references}
        if label not in known and "name" not in table.get(label, {}):
            problem = f"{kind}.{label} requires a name" if label in table else f"unknown label {label!r} in {kind}"
            source = self._origin((kind, label) if label in table else ("compare", kind))
            raise SettingsError(f"{source}: {nearest(problem, label, {*known, *table} - {label})}")

    def _merged(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """The run part of ``raw`` with the labeled settings of its algorithm and initializer merged in."""
        merged = dict(raw)
        for single, kind in TABLES.items():
            default = Experiment.model_fields[single].default
            chosen = merged.get(single, default)
            chosen = {"name": chosen} if isinstance(chosen, str) else chosen
            if not isinstance(chosen, Mapping) or not isinstance(label := chosen.get("name", default), str):
                continue
            if merged.get(_NAMED[single], "") == "":
                merged[_NAMED[single]] = label
            if "name" not in chosen:
                continue
            table = merged.get(kind)
            entry = table.get(label) if isinstance(table, Mapping) else None
            entry = dict(entry) if isinstance(entry, Mapping) else {}
            extra = self._with(kind, label, entry.pop("with", None) or {})
            if single == "algorithm" and label in REFERENCES and "name" not in entry:
                reference = REFERENCES[label].entry_for(merged)
                merged = merge_run(merged, reference.pop("with"))
                entry = {**reference, **entry}
            if extra:
                merged = merge_run(merged, extra)
            merged[single] = {**entry, **chosen, "name": entry.get("name", label)}
        return merged

    def _with(self, kind: str, label: str, extra: Any) -> Mapping[str, Any]:
        """What a label's entry has in ``with``, if it may have that."""
        place, where = (kind, label, "with"), f"{kind}.{label}.with"
        if not isinstance(extra, Mapping):
            raise SettingsError(f"{self._origin(place)}: {where} = {shortened(repr(extra))}: should be an object")
        if fixed := {"seed", "label", "algorithm", "initializer"} & extra.keys():
            raise SettingsError(f"{self._origin(place)}: {where} cannot set {', '.join(sorted(fixed))}")
        if unknown := sorted(map(str, extra.keys() - RUN_KEYS)):
            problem = nearest(f"{where}: {unknown[0]!r} is not a setting of a run", unknown[0], RUN_KEYS)
            raise SettingsError(f"{self._origin((*place, unknown[0]), place)}: {problem}")
        return extra

    def run(self, algorithm: str | None = None, initializer: str | None = None, seed: int | None = None) -> RunSettings:
        """Settings of one run; what is not given comes from the file's ``algorithm``, ``initializer`` and ``seed``."""
        labels: dict[str, str] = {}
        raw = dict(self.raw)
        for single, label in (("algorithm", algorithm), ("initializer", initializer)):
            if label is not None:
                self._refuse_unknown(TABLES[single], label)
                raw |= {single: {"name": label}, _NAMED[single]: label}
                labels[single] = label

        def origin(place: Place) -> str:
            entries = [(single, TABLES[single], label) for single, label in labels.items()]
            tables = [(table, label, "with", *place) for _, table, label in entries]
            tables += [(table, label, *place[1:]) for single, table, label in entries if place and place[0] == single]
            return ", ".join([self._origin(place, *tables), *(f"{table}.{label}" for _, table, label in entries)])

        merged = self._merged(raw)
        if (text := _text(merged)) not in self._validated:
            self._validated[text] = parse(RunSettings, {key: merged[key] for key in RUN_KEYS if key in merged}, origin)
        settings = self._validated[text]
        if seed is not None:
            settings = settings.model_copy(update={"seed": parse(_Seeded, {"seed": seed}, origin).seed})
        return settings

    def grid(self) -> list[RunSettings]:
        """All runs of ``compare``: algorithms x initializers x seeds."""
        compare = self.experiment.compare
        return [self.run(*labels) for labels in product(compare.algorithms, compare.initializers, compare.seeds)]


def refuse_other(params: Any, *kinds: type) -> None:
    """Refuse what a script has given instead of settings of these classes."""
    if not isinstance(params, kinds):
        cure = (
            "write fedtide.Params(...) around a mapping of settings, or fedtide.Params.read(...) around a file's name"
        )
        raise SettingsError(f"params is {shortened(repr(params))}, expected fedtide.Params; {cure}")


class _Seeded(SettingsModel):
    seed: Seed


def _text(merged: Mapping[str, Any]) -> str:
    return json.dumps({key: merged[key] for key in RUN_KEYS if key in merged})
