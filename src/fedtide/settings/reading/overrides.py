"""Settings on top of others: ``a.b=value``, and groups merged into groups, with plug-ins chosen anew."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import yaml

from fedtide.core.errors import SettingsError, shortened
from fedtide.core.plugins import SettingsModel
from fedtide.settings.choices import Choice, choice_of, group_at
from fedtide.settings.experiment import TABLES, Experiment
from fedtide.settings.groups.local import WORK
from fedtide.settings.reading.references import REFERENCES
from fedtide.settings.reading.yaml_files import read_value
from fedtide.settings.run import RunSettings

Path = tuple[str, ...]


def apply_overrides(raw: dict[str, Any], items: Sequence[str], source: str = "params.yaml") -> list[str]:
    """Apply ``a.b=value`` overrides to a raw mapping, in place; returns a line for each choice whose settings were dropped.

    ``partition.name=natural`` drops the settings of the partition before it, but not those of other overrides.
    """
    names = {tuple(keys[:-1]): value for keys, value in map(_parts, items) if keys[-1] == "name"}
    remarks = []
    for path, name in sorted(names.items(), key=lambda pair: len(pair[0])):
        old, choice = _at(raw, path), _choice_at(raw, path)
        if choice is None or not isinstance(old, Mapping) or not isinstance(name, str):
            continue
        kept = _kept(old, name, choice)
        if dropped := [f"{key} = {_shown(value)}" for key, value in old.items() if key not in kept]:
            before = old.get("name", choice.default)
            where = f"{'.'.join(path)}.name = {name} drops the settings of {before} from {source}"
            remarks.append(f"{where}: {', '.join(dropped)}")
        _put(raw, path, kept)
    for item in items:
        override(raw, item)
    return remarks


def override(raw: dict[str, Any], item: str) -> None:
    """Apply one ``a.b=value`` to a raw mapping, in place."""
    keys, value = _parts(item)
    for depth in range(1, len(keys)):
        path = tuple(keys[:depth])
        group = _at(raw, path)
        if isinstance(group, str) and _choice_at(raw, path):
            group = {"name": group}
        if not isinstance(group, dict | None):
            raise SettingsError(f"--set {item!r}: {'.'.join(path)} is a value, not a group")
        _put(raw, path, dict((_other_work(group, keys[depth:]) if keys[depth - 1] == "local" else group) or {}))
    _put(raw, tuple(keys), value)


def deep_merge(base: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with the values of ``extra``; groups in both are merged."""
    return _merged(base, extra, lambda old, new, path: old)


def merge_run(raw: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a run with those of a label's ``with``: where that names another plug-in, it starts with its defaults."""

    def kept(old: Any, new: Mapping[str, Any], path: Path) -> Any:
        choice = _choice_at(raw, path)
        old = {"name": old} if isinstance(old, str) and choice else old
        name = new.get("name")
        return _kept(old, name, choice) if choice and isinstance(old, Mapping) and isinstance(name, str) else old

    return _merged(raw, extra, kept)


def _merged(
    base: Mapping[str, Any],
    extra: Mapping[str, Any],
    kept: Callable[[Any, Mapping[str, Any], Path], Any],
    path: Path = (),
) -> dict[str, Any]:
    """``base`` with the values of ``extra``, which are merged into what is ``kept`` of groups."""
    merged = dict(base)
    for key, value in extra.items():
        here = (*path, key)
        if key == "local" and isinstance(value, Mapping):
            merged[key] = _other_work(merged.get(key), value)
        if isinstance(value, Mapping) and isinstance(old := kept(merged.get(key), value, here), Mapping):
            value = _merged(old, value, kept, here)
        merged[key] = value
    return merged


def _other_work(group: Any, given: Iterable[str]) -> Any:
    """The group ``local`` without its amount of work, where another one is given."""
    if not isinstance(group, Mapping) or not set(WORK) & set(given):
        return group
    return {key: value for key, value in group.items() if key not in WORK}


def _parts(item: str) -> tuple[list[str], Any]:
    """The keys and the value of ``a.b=value``."""
    path, equals, text = item.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise SettingsError(f"--set {item!r}: write it as key=value, e.g. local.lr=0.1")
    try:
        return keys, read_value(text)
    except (yaml.YAMLError, RecursionError):
        raise SettingsError(f"--set {item!r}: {text!r} is not a YAML value") from None


def _kept(old: Mapping[str, Any], name: str, choice: Choice) -> dict[str, Any]:
    """What of a group remains when ``name`` is chosen; ``with`` is a label's."""
    kept = old.keys() if old.get("name", choice.default) == name else {"name", "with", *choice.common}
    return {key: value for key, value in old.items() if key in kept}


def _at(raw: Any, path: Sequence[str]) -> Any:
    for key in path:
        raw = raw.get(key) if isinstance(raw, Mapping) else None
    return raw


def _put(raw: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Set a value below existing groups, without changing the mappings on the way, which may be shared."""
    for key in path[:-1]:
        raw[key] = raw = dict(raw[key])
    raw[path[-1]] = value


def _shown(value: Any) -> str:
    return shortened(yaml.safe_dump(value, default_flow_style=True).removesuffix("...\n").strip())


def _choice_at(raw: Mapping[str, Any], path: Path) -> Choice | None:
    """The choice at a path of a settings file, None if there is no such group."""
    model: type[SettingsModel] | None = Experiment
    if path[0] in TABLES.values() and len(path) > 1:
        label, entry = path[1], _at(raw, path[:2])
        choice = Choice(path[0], str(REFERENCES[label].entry["name"]) if label in REFERENCES else label)
        if len(path) == 2:
            return choice
        if path[2] == "with":
            extra = _at(entry, ("with",))
            model, path = RunSettings, path[3:]
            raw = deep_merge(raw, extra) if isinstance(extra, Mapping) else raw
        else:
            model, raw, path = choice.chosen(entry), entry, path[2:]
    group = group_at(model, raw, path[:-1]) if model and path else None
    return choice_of(group.model_fields.get(path[-1])) if group else None
