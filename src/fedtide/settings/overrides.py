"""Settings on top of others: ``a.b=value``, and groups merged into groups, with plug-ins chosen anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, get_args

import yaml

from fedtide.core import plugins
from fedtide.core.errors import SettingsError, shortened
from fedtide.core.plugins import SettingsModel
from fedtide.settings.choices import Choice
from fedtide.settings.experiment import TABLES, Experiment
from fedtide.settings.references import REFERENCES
from fedtide.settings.run import RunSettings
from fedtide.settings.yaml_files import read_value


class _Chosen(NamedTuple):
    """A group of settings that names a plug-in or another choice: the name where none is given, and keys that all have."""

    default: str
    common: frozenset[str]


def apply_overrides(raw: dict[str, Any], items: Sequence[str], source: str = "params.yaml") -> list[str]:
    """Apply ``a.b=value`` overrides to a raw mapping, in place.

    ``partition.name=natural`` drops the settings of the partition before it, but not those of other overrides.

    Returns:
        A line for each choice whose settings were dropped.
    """
    for item in items:
        _parts(item)
    found, remarks = {tuple(keys[:-1]): value for keys, value in map(_parts, items) if keys[-1] == "name"}, []
    for group, name in sorted(found.items(), key=lambda pair: len(pair[0])):
        old, choice = _at(raw, group), _choice_at(raw, group)
        if choice is None or not isinstance(old, Mapping) or not isinstance(name, str):
            continue
        kept = _kept(old, name, choice)
        if dropped := [f"{key} = {_shown(value)}" for key, value in old.items() if key not in kept]:
            before = old.get("name", choice.default)
            where = f"{'.'.join(group)}.name = {name} drops the settings of {before} from {source}"
            remarks.append(f"{where}: {', '.join(dropped)}")
        _put(raw, group, kept)
    for item in items:
        override(raw, item)
    return remarks


def override(raw: dict[str, Any], item: str) -> None:
    """Apply one ``a.b=value`` to a raw mapping, in place."""
    keys, value = _parts(item)
    node = raw
    for depth, key in enumerate(keys[:-1]):
        path = tuple(keys[: depth + 1])
        child = {} if node.get(key) is None else node[key]
        if isinstance(child, str) and _choice_at(raw, path):
            child = {"name": child}
        if not isinstance(child, dict):
            raise SettingsError(f"--set {item!r}: {'.'.join(path)} is a value, not a group")
        node[key] = node = dict(child)
    node[keys[-1]] = value


def deep_merge(base: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with the values of ``extra``; groups in both are merged."""
    merged = dict(base)
    for key, value in extra.items():
        old = merged.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            value = deep_merge(old, value)
        merged[key] = value
    return merged


def merge_run(raw: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a run with those of a label's ``with``: where that names another plug-in, it starts with its defaults."""

    def merge(base: Mapping[str, Any], extra: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
        merged = dict(base)
        for key, value in extra.items():
            old, here = merged.get(key), (*path, key)
            if isinstance(value, Mapping) and isinstance(old, Mapping | str):
                choice = _choice_at(raw, here)
                old = {"name": old} if isinstance(old, str) and choice else old
                if choice and isinstance(old, Mapping) and isinstance(name := value.get("name"), str):
                    old = _kept(old, name, choice)
                value = merge(old, value, here) if isinstance(old, Mapping) else value
            merged[key] = value
        return merged

    return merge(raw, extra, ())


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


def _kept(old: Mapping[str, Any], name: str, choice: _Chosen) -> dict[str, Any]:
    """What of a group remains when ``name`` is chosen."""
    same = old.get("name", choice.default) == name
    return {key: value for key, value in old.items() if same or key == "name" or key in choice.common}


def _at(raw: Any, path: Sequence[str]) -> Any:
    for key in path:
        raw = raw.get(key) if isinstance(raw, Mapping) else None
    return raw


def _put(raw: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Replace an existing group, without changing the mappings on the way, which may be shared."""
    for key in path[:-1]:
        raw[key] = raw = dict(raw[key])
    raw[path[-1]] = value


def _shown(value: Any) -> str:
    return shortened(yaml.safe_dump(value, default_flow_style=True).removesuffix("...\n").strip())


def _choice_at(raw: Mapping[str, Any], path: Sequence[str]) -> _Chosen | None:
    """The choice at a path of a settings file, None if there is no such group."""
    if path[0] not in TABLES.values():
        return _walk(Experiment, raw, path)
    kind = {"algorithms": "algorithms", "initialisers": "initialisation"}[path[0]]
    if len(path) < 2:
        return None
    label, entry = path[1], _at(raw, path[:2])
    default = str(REFERENCES[label].entry["name"]) if label in REFERENCES else label
    if len(path) == 2:
        return _Chosen(default, plugins.common_settings(kind) | {"with"})
    if path[2] == "with":
        extra = _at(entry, ("with",))
        return _walk(RunSettings, deep_merge(raw, extra) if isinstance(extra, Mapping) else raw, path[3:])
    return _walk(_settings(kind, entry, default), entry, path[2:])


def _walk(model: type[SettingsModel] | None, raw: Any, path: Sequence[str]) -> _Chosen | None:
    """The choice at a path of a group of settings."""
    if model is None or not path or path[0] not in model.model_fields:
        return None
    field, child, rest = model.model_fields[path[0]], _at(raw, path[:1]), path[1:]
    named = next((item for item in field.metadata if isinstance(item, Choice)), None)
    if named is not None:
        if not rest:
            return _Chosen(named.default, plugins.common_settings(named.kind))
        return _walk(_settings(named.kind, child, named.default), child, rest)
    if field.discriminator == "name":
        default: str = field.get_default(call_default_factory=True).name
        if not rest:
            return _Chosen(default, frozenset())
        chosen = _name(child, default)
        options = {option.model_fields["name"].default: option for option in get_args(field.annotation)}
        return _walk(options.get(chosen), child, rest)
    group = field.annotation
    return _walk(group if isinstance(group, type) and issubclass(group, SettingsModel) else None, child, rest)


def _settings(kind: str, raw: Any, default: str) -> type[SettingsModel] | None:
    """The settings class of the plug-in that a group names; None if there is no such plug-in."""
    try:
        return plugins.load(kind, _name(raw, default)).Settings
    except SettingsError:
        return None


def _name(raw: Any, default: str) -> str:
    found = raw.get("name", default) if isinstance(raw, Mapping) else raw
    return found if isinstance(found, str) else default
