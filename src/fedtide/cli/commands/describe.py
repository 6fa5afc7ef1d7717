"""Plug-ins in words: names, documentation, settings, traffic."""

import ast
import inspect
from typing import Any

import yaml

from fedtide.core import plugins
from fedtide.core.discovery.source import source_file, tree
from fedtide.core.errors import SettingsError
from fedtide.core.plugins import PluginSettings, SettingsModel
from fedtide.settings.reading.references import REFERENCES

_ALIASES = {
    "datasets": "data",
    "drifts": "drift",
    "links": "uplink",
    "selections": "selection",
    "weightings": "weighting",
}


def kind_of(word: str) -> str:
    """The kind of plug-in for a word: plural or singular, datasets or data.

    Raises:
        SettingsError: there is no such kind.
    """
    for candidate in (word, _ALIASES.get(word, ""), f"{word}s", _ALIASES.get(f"{word}s", "")):
        if candidate in plugins.KINDS:
            return candidate
    raise SettingsError(f"no kind {word!r}; known: {', '.join(sorted({*plugins.KINDS, *_ALIASES}))}")


def kinds() -> list[dict[str, str]]:
    """Name and one-line summary of every kind of plug-in."""
    packages = [(kind, source_file(f"{plugins.package_of(kind)}.base")) for kind in plugins.KINDS]
    texts = {kind: ast.get_docstring(tree(file.with_name("__init__.py"))) for kind, file in packages if file}
    return [{"name": kind, "summary": text or ""} for kind, text in texts.items()]


def listing(kind: str) -> list[dict[str, str]]:
    """Name and one-line summary of every plug-in of a kind; a broken one's is the reason. References are algorithms."""
    kind = kind_of(kind)
    reasons = {name: plugins.broken(kind, name) for name in plugins.names(kind)}
    texts = {name: f"broken: {why}" if why else plugins.summary(kind, name) for name, why in reasons.items()}
    if kind == "algorithms":
        texts |= {label: reference.summary for label, reference in REFERENCES.items() if label not in texts}
    return [{"name": name, "summary": text} for name, text in texts.items()]


def broken() -> list[str]:
    """Why plug-ins cannot be used, one line for each that cannot."""
    found = (plugins.broken(kind, name, imported=True) for kind in plugins.KINDS for name in plugins.names(kind))
    return [reason for reason in found if reason]


def describe(kind: str, name: str) -> str:
    """Docstring, settings with defaults and bounds, and for algorithms traffic and memory, with default settings."""
    found = facts(kind, name)
    lines = [name, "", found["documentation"], "", "Settings"]
    if "entry" in found:
        return "\n".join([*lines, *_lines(found["entry"])])
    for key, field in plugins.load(found["kind"], name).Settings.model_fields.items():
        if key == "name":
            continue
        default = "required" if field.is_required() else field.get_default(call_default_factory=True)
        default = _plain(getattr(default, "name", default))
        lines.append(f"  {key} = {default}  ({_allowed(field)})  {field.description or ''}".replace("  ()", ""))
    if found["kind"] == "algorithms":
        lines += ["", "Traffic per participant and exchange, and memory", *(f"  {line}" for line in found["traffic"])]
        if (label := REFERENCES.get(name)) is not None:
            lines += ["", f"As a label in `compare.algorithms`, unless algorithms.{name} has a name"]
            lines += _lines(label.settings)
    return "\n".join(lines)


def facts(kind: str, name: str) -> dict[str, Any]:
    """The same as :func:`describe`, machine-readable: ``kind, name, documentation, settings`` (a JSON Schema), ``traffic``."""
    kind = kind_of(kind)
    if kind == "algorithms" and name in REFERENCES and name not in plugins.names(kind):
        documentation = inspect.cleandoc(REFERENCES[name].documentation)
        return {"kind": kind, "name": name, "documentation": documentation, "entry": REFERENCES[name].settings}
    cls = plugins.load(kind, name)
    found = {"kind": kind, "name": name, "documentation": inspect.getdoc(cls) or ""}
    schema = cls.Settings.model_json_schema()
    del schema["properties"]["name"]
    traffic = _traffic(cls.Settings(name=name)) if kind == "algorithms" else []
    return {**found, "settings": schema["properties"], "traffic": traffic}


def _plain(value: Any) -> Any:
    """A default as it would be given: of settings what differs from their defaults."""
    if isinstance(value, tuple) and any(isinstance(item, SettingsModel) for item in value):
        return [_plain(item) for item in value]
    return value.model_dump(mode="json", exclude_defaults=True) if isinstance(value, SettingsModel) else value


def _lines(settings: dict[str, Any]) -> list[str]:
    return [f"  {line}" for line in yaml.safe_dump(settings, sort_keys=False).splitlines()]


def _traffic(settings: PluginSettings) -> list[str]:
    """What an algorithm sends and keeps; declarations may depend on its settings."""
    from fedtide.methods.algorithms.base import Algorithm, server_vectors  # imports torch, which listings do without

    algorithm = plugins.create(Algorithm, settings)
    names = {
        "down: ": algorithm.down,
        "up:   ": algorithm.up,
        "kept by the server: ": [vector.name for vector in server_vectors(algorithm)],
        "kept by each client: ": algorithm.client,
    }
    return [f"{title}{', '.join(items) or 'nothing'}" for title, items in names.items()]


def _allowed(field: Any) -> str:
    """Bounds, choices and search range of a field."""
    signs = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
    parts = [
        f"{sign} {getattr(item, name):g}"
        for item in field.metadata
        for name, sign in signs.items()
        if getattr(item, name, None) is not None
    ]
    choices = getattr(field.annotation, "__args__", ())
    if choices and all(isinstance(choice, str) for choice in choices):
        parts.append("one of " + ", ".join(choices))
    tune = (field.json_schema_extra or {}).get("tune")
    if tune:
        parts.append(f"searched in [{tune['low']:g}, {tune['high']:g}]{' on a log scale' if tune.get('log') else ''}")
    return ", ".join(parts)
