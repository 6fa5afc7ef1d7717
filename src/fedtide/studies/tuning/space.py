"""The search space: varied settings by dotted key, and the settings of a trial."""

import copy
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Union, get_args, get_origin

from fedtide.core.errors import SettingsError, nearest
from fedtide.core.plugins import PluginSettings, SettingsModel
from fedtide.settings.groups.tuning import SearchChoices, SearchRange, Value
from fedtide.settings.params import Params
from fedtide.settings.run import RunSettings, StopSettings
from fedtide.settings.scores import score_of

Values = Mapping[str, Value]
_SEARCHED = ("algorithm", "initializer", "local")  # groups whose tunable settings are searched by default


@dataclass(frozen=True)
class Dimension:
    """One varied setting: its dotted key and inclusive range; ``log`` searches the exponent."""

    key: str
    low: float
    high: float
    log: bool
    integer: bool

    @property
    def limits(self) -> tuple[Value, ...]:
        """Both ends of the range, which are allowed if all values between are."""
        return tuple(int(end) if self.integer else end for end in (self.low, self.high))


@dataclass(frozen=True)
class Choice:
    """One varied setting: its dotted key and the values it may take."""

    key: str
    limits: tuple[Value, ...]


class Space:
    """The settings that a search varies, around those of a settings file.

    Values of the initializer's settings are put under its label in ``initializers``, all others under the algorithm's label
    in ``algorithms`` (settings of the run in its ``with``), so that each algorithm of a comparison is tuned separately.

    Args:
        params: the settings file; its ``algorithm`` and ``initializer`` are tuned.

    Attributes:
        dimensions: what is varied. base: settings of a trial without varied values. extremes: settings with each end of a
            range and each choice alone; together they use all code that a trial may depend on.

    Raises:
        SettingsError: ``tune.space`` names a setting that does not exist, is not a number, is fixed elsewhere, or does
            not allow a value of the range or one of the choices.
    """

    def __init__(self, params: Params) -> None:
        self._params, self._tune = params, params.experiment.tune
        self.base = self.settings({})
        wanted = self._tune.space or dict(
            found for group in _SEARCHED for found in _tunables(getattr(self.base, group), group)
        )
        self.dimensions = tuple(_dimension(self.base, key, range_) for key, range_ in wanted.items())
        self.extremes = [self._checked(dim.key, value) for dim in self.dimensions for value in dim.limits]

    def settings(self, values: Values, seed: int | None = None) -> RunSettings:
        """Settings of a trial's run: with a seed (the first) and the metric of the search, evaluated for validation only."""
        run = self._merged(values).run(seed=self._tune.run_seeds[0] if seed is None else seed)
        score, recorded = score_of(self._tune.metric), run.evaluation.metrics
        metrics = recorded if score.metric is None or score.metric in recorded else (*recorded, score.metric)
        changed: dict[str, Any] = {"splits": ("validation",), "metrics": metrics}
        if score.of_clients and not run.evaluation.clients_every:
            changed["clients_every"] = run.evaluation.every
        if score.of_erased:
            changed["erased"] = True
            if not run.erase:
                raise SettingsError(f"tune.metric = {self._tune.metric} requires a request to erase clients; set erase")
        if self._tune.metric.startswith("finetuned_") and not run.evaluation.finetune_steps:
            raise SettingsError(f"tune.metric = {self._tune.metric} requires evaluation.finetune_steps > 0")
        # Trials that end at a target, or in different rounds, could not be ranked: only pruners end them early.
        return run.model_copy(update={"evaluation": run.evaluation.model_copy(update=changed), "stop": StopSettings()})

    def raw(self, values: Values) -> dict[str, Any]:
        """The settings file with ``values`` merged in."""
        return self._merged(values).raw

    def _merged(self, values: Values) -> Params:
        raw = copy.deepcopy(self._params.raw)
        algorithm, initializer = _own_entry(raw, "algorithm"), _own_entry(raw, "initializer")
        for key, value in values.items():
            group, *path = key.split(".")
            if group == "algorithm":
                _put(algorithm, self.base.algorithm, path, value)
            elif group == "initializer":
                _put(initializer, self.base.initializer, path, value)
            else:
                overrides = algorithm["with"] = dict(algorithm.get("with") or {})
                _put(overrides, self.base, [group, *path], value)
        return Params(raw, self._params.source)

    def _checked(self, key: str, value: Value) -> RunSettings:
        settings = self.settings({key: value})
        found = _find(settings, key)[2]
        if found != value and str(found) != value:  # infinity is given as a word
            raise SettingsError(f"tune.space: {key} cannot be searched: it is fixed elsewhere at {found!r}")
        return settings


def _own_entry(raw: dict[str, Any], single: str) -> dict[str, Any]:
    """The labeled entry of the chosen algorithm or initializer; its direct settings are moved there."""
    chosen = raw.get(single) or {}
    direct = {"name": chosen} if isinstance(chosen, str) else dict(chosen)
    label = direct.pop("name", RunSettings.model_fields[single].default)
    table = dict(raw.get(f"{single}s") or {})
    entry = {**(table.get(label) or {}), **direct}
    raw[f"{single}s"] = table | {label: entry}
    raw[single] = {"name": label}
    return entry


def _put(raw: dict[str, Any], resolved: Any, path: list[str], value: Value) -> None:
    """Set a nested value; a group on the path that is given by its name alone becomes a mapping with that name."""
    *groups, last = path
    for group in groups:
        if isinstance(resolved, tuple):
            resolved = _by_name(resolved)[group]
            continue
        resolved = getattr(resolved, group)
        child = raw.get(group)
        if isinstance(resolved, tuple):
            raw = _entry(raw, group, resolved, path[path.index(group) + 1])
            continue
        raw[group] = dict(child) if isinstance(child, Mapping) else {}
        if (name := getattr(resolved, "name", None)) is not None:
            raw[group].setdefault("name", name)
        raw = raw[group]
    raw[last] = value


def _by_name(listed: tuple[Any, ...]) -> dict[str, Any]:
    """Settings of plug-ins in a list, such as the links of the uplink."""
    return {item.name: item for item in listed if isinstance(item, PluginSettings)}


def _entry(raw: dict[str, Any], group: str, resolved: tuple[Any, ...], name: str) -> dict[str, Any]:
    """The entry of a plug-in in a list of settings, which becomes a list of mappings."""
    given = {entry["name"]: entry for entry in raw.get(group) or () if isinstance(entry, Mapping)}
    raw[group] = [dict(given.get(item.name) or item.model_dump(mode="json")) for item in resolved]
    found: dict[str, Any] = next(entry for entry in raw[group] if entry["name"] == name)
    return found


def _find(settings: RunSettings, key: str) -> tuple[SettingsModel, str, Any]:
    """Group, field and value of a dotted key; a SettingsError if there is no such setting."""
    group: Any = settings
    *path, last = key.split(".")
    for part in (*path, last):
        known: Any = type(group).model_fields if isinstance(group, SettingsModel) else {}
        if isinstance(group, tuple):
            known = _by_name(group)
        if part not in known:
            raise SettingsError(nearest(f"tune.space: unknown setting {key!r}", part, known))
        owner, group = group, known[part] if isinstance(group, tuple) else getattr(group, part)
    return owner, last, group


def _dimension(settings: RunSettings, key: str, wanted: SearchRange | SearchChoices) -> Dimension | Choice:
    owner, field, present = _find(settings, key)
    if field in ("seed", "world_seed"):
        raise SettingsError(f"tune.space: {key} cannot be searched, since it only changes the random seed")
    annotation = type(owner).model_fields[field].annotation if isinstance(owner, SettingsModel) else None
    union = get_origin(annotation) in (Union, types.UnionType)
    members = get_args(annotation) if union else (annotation,)
    kinds = {get_args(kind)[0] if get_origin(kind) is Annotated else kind for kind in members}
    if isinstance(wanted, SearchChoices):
        if not isinstance(present, Value) and not (present is None and kinds & {int, float}):
            raise SettingsError(f"tune.space: {key} is neither a string nor a number, so it cannot be searched")
        return Choice(key, wanted.choices)
    if not kinds & {int, float}:
        raise SettingsError(f"tune.space: {key} is not a number, so it cannot be searched in a range")
    integer = float not in kinds
    if integer and not (wanted.low.is_integer() and wanted.high.is_integer()):
        raise SettingsError(f"tune.space: {key} is an integer, but its range is {wanted.low:g} to {wanted.high:g}")
    return Dimension(key, wanted.low, wanted.high, wanted.log, integer)


def _tunables(group: SettingsModel, prefix: str) -> Iterator[tuple[str, SearchRange]]:
    for name, field in type(group).model_fields.items():
        extra, value = field.json_schema_extra, getattr(group, name)
        if isinstance(extra, dict) and isinstance(extra.get("tune"), dict):
            yield f"{prefix}.{name}", SearchRange.model_validate(extra["tune"])
        elif isinstance(value, SettingsModel):
            yield from _tunables(value, f"{prefix}.{name}")
