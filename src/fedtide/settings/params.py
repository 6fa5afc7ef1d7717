"""A params file, its overrides and labels, resolved into the settings of runs."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedtide.core import plugins
from fedtide.core.errors import SettingsError, nearest, shortened
from fedtide.core.shipped import DEFAULTS
from fedtide.settings.experiment import RUN_KEYS, TABLES, Experiment
from fedtide.settings.overrides import apply_overrides, merge_run
from fedtide.settings.parse import parse
from fedtide.settings.references import REFERENCES
from fedtide.settings.run import RunSettings
from fedtide.settings.yaml_files import read_mapping

Place = tuple[int | str, ...]
"""The path of a setting."""


class Params:
    """A params file with overrides: validated once, resolved into runs.

    >>> params = Params({"algorithm": {"name": "fedprox", "mu": 0.1}, "compare": {"seeds": [0, 1]}})
    >>> params.run().algorithm.mu
    0.1
    >>> [(run.label, run.seed) for run in params.grid()]
    [('fedavg', 0), ('fedavg', 1)]

    Args:
        raw: content of the file; by default that of the default experiment, which an empty folder has.
        source: its name, for messages.
        overrides: what of ``raw`` was set on the command line, as ``a.b=value``, for messages.

    Attributes:
        remarks: what a user should know about how the settings were read, one line each.
    """

    def __init__(
        self, raw: Mapping[str, Any] | None = None, source: str = "params.yaml", overrides: Iterable[str] = ()
    ) -> None:
        self.raw = read_mapping(DEFAULTS) if raw is None else dict(raw)
        self.source, self.overrides = source, tuple(overrides)
        experiment: Experiment = parse(Experiment, self._merged(self.raw), self._origin)
        try:
            self.experiment = experiment.for_its_task()
        except SettingsError as error:
            raise SettingsError(f"{self._origin(('report', 'metric'), ('tune', 'metric'))}: {error}") from None
        compare = self.experiment.compare
        for label in {*self.experiment.algorithms, *compare.algorithms}:
            self.run(algorithm=label)
        for label in {*self.experiment.initialisers, *compare.initialisers}:
            self.run(initialiser=label)
        self.remarks = [
            f"{self.source}: its own algorithms.{label} is used, not the reference that `fedtide show algorithm {label}` shows"
            for label in dict.fromkeys([*compare.algorithms, self.experiment.label])
            if label in REFERENCES and "name" in self.experiment.algorithms.get(label, {})
        ]

    @staticmethod
    def read(path: str | Path | Mapping[str, Any], overrides: str | Iterable[str] = ()) -> Params:
        """Read a YAML file, or the same as a mapping, and apply ``a.b=value`` overrides (values are YAML).

        An override that chooses another plug-in, such as ``partition.name=natural``, drops the settings of the one before it
        (but for those of other overrides) and leaves a line in ``remarks``.
        """
        overrides = (overrides,) if isinstance(overrides, str) else tuple(overrides)
        if isinstance(path, Mapping):
            raw, source = copy.deepcopy(dict(path)), "settings"
        elif not isinstance(path, str | os.PathLike):
            raise SettingsError(f"settings should be a file or a mapping, got {shortened(repr(path))}")
        elif (path := Path(path)).is_file():
            raw, source = read_mapping(path), path.name
        else:
            raise SettingsError(f"no settings file {path}; name one with --params, or write one with `fedtide init`")
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

    def _entry(self, kind: str, label: str) -> dict[str, Any]:
        """Raw settings of a label, ``name`` filled in."""
        entry = dict((self.raw.get(kind) or {}).get(label) or {})
        folder, references = ("algorithms", REFERENCES) if kind == "algorithms" else ("initialisation", {})
        if "name" not in entry and label not in references and label not in plugins.names(folder):
            named, known = self.raw.get(kind) or {}, [*plugins.names(folder), *references]
            problem = f"{kind}.{label} needs a name" if label in named else f"unknown label {label!r} in {kind}"
            source = self._origin((kind, label) if label in named else ("compare", kind))
            raise SettingsError(f"{source}: {nearest(problem, label, {*known, *named} - {label})}")
        return {"name": label, **entry}

    def _merged(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """The run part of ``raw`` with the labelled settings of its algorithm and initialiser merged in."""
        merged = dict(raw)
        for single, kind in TABLES.items():
            chosen = merged.get(single, Experiment.model_fields[single].default)
            chosen = {"name": chosen} if isinstance(chosen, str) else chosen
            if not isinstance(chosen, Mapping) or not isinstance(chosen.get("name"), str):
                continue
            label, table = chosen["name"], merged.get(kind)
            entry = table.get(label) if isinstance(table, Mapping) else None
            entry = dict(entry) if isinstance(entry, Mapping) else {}
            extra = entry.pop("with", None) or {}
            if isinstance(extra, Mapping) and (fixed := {"seed", "label", "algorithm", "initialiser"} & extra.keys()):
                source = self._origin((kind, label, "with"))
                raise SettingsError(f"{source}: {kind}.{label}.with cannot set {', '.join(sorted(fixed))}")
            if isinstance(extra, Mapping) and (unknown := sorted(map(str, extra.keys() - RUN_KEYS))):
                source = self._origin((kind, label, "with", unknown[0]), (kind, label, "with"))
                problem = f"{kind}.{label}.with: {unknown[0]!r} is no setting of a run"
                raise SettingsError(f"{source}: {nearest(problem, unknown[0], RUN_KEYS)}")
            if single == "algorithm" and label in REFERENCES and "name" not in entry:
                reference = REFERENCES[label].entry_for(merged)
                merged = merge_run(merged, reference.pop("with"))
                entry = {**reference, **entry}
            merged = merge_run(merged, extra) if isinstance(extra, Mapping) else merged
            merged[single] = {**entry, **chosen, "name": entry.get("name", label)}
            named = "label" if single == "algorithm" else "initialiser_label"
            merged[named] = label if raw.get(named, "") == "" else raw[named]
        return merged

    def run(self, algorithm: str | None = None, initialiser: str | None = None, seed: int | None = None) -> RunSettings:
        """Settings of one run; what is not given comes from the file's ``algorithm``, ``initialiser`` and ``seed``."""
        raw, chosen = dict(self.raw), list[tuple[str, str]]()
        if algorithm is not None:
            chosen.append(("algorithms", algorithm))
            self._entry("algorithms", algorithm)
            raw |= {"algorithm": {"name": algorithm}, "label": algorithm}
        if initialiser is not None:
            chosen.append(("initialisers", initialiser))
            self._entry("initialisers", initialiser)
            raw |= {"initialiser": {"name": initialiser}, "initialiser_label": initialiser}
        if seed is not None:
            raw["seed"] = seed

        def origin(place: Place) -> str:
            tables = [(kind, label, "with", *place) for kind, label in chosen]
            tables += [(kind, label, *place[1:]) for kind, label in chosen if f"{place[0]}s" == kind] if place else []
            return ", ".join([self._origin(place, *tables), *(f"{kind}.{label}" for kind, label in chosen)])

        merged = self._merged(raw)
        of_run = {key: value for key, value in merged.items() if key in RUN_KEYS}
        settings: RunSettings = parse(RunSettings, of_run, origin)
        labels = {"label": settings.algorithm.name, "initialiser_label": settings.initialiser.name}
        return settings.model_copy(update={k: v for k, v in labels.items() if not getattr(settings, k)})

    def grid(self) -> list[RunSettings]:
        """All runs of ``compare``: algorithms x initialisers x seeds."""
        compare = self.experiment.compare
        return [
            self.run(algorithm, initialiser, seed)
            for algorithm in compare.algorithms
            for initialiser in compare.initialisers
            for seed in compare.seeds
        ]
