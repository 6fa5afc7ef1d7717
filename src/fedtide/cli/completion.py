"""What the shell proposes for words of a command line: kinds and names of plug-ins, settings and their plug-ins."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import typer

from fedtide.core import plugins
from fedtide.core.discovery.shipped import DEFAULTS
from fedtide.core.errors import SettingsError
from fedtide.settings.reading.references import REFERENCES


def kinds(incomplete: str) -> list[str]:
    """Kinds of plug-ins that begin with a text."""
    return _beginning(incomplete, plugins.KINDS)


def names(context: typer.Context, incomplete: str) -> list[str]:
    """Names of plug-ins: of the kind before on the command line, or of all kinds."""
    from fedtide.cli.commands.describe import kind_of

    with suppress(SettingsError):
        chosen = context.params.get("kind")
        return _beginning(incomplete, _labels([kind_of(chosen)] if chosen else plugins.KINDS))
    return []


def settings(incomplete: str) -> list[str]:
    """``a.b=`` for ``--set``, in the groups that the settings file has, and after the sign the plug-ins to choose from."""
    from fedtide.settings.choices import choice_of, group_at
    from fedtide.settings.experiment import Experiment
    from fedtide.settings.reading.yaml_files import read_mapping

    key, equals, _ = incomplete.partition("=")
    *path, last = key.split(".")
    with suppress(SettingsError):
        raw = read_mapping(file if (file := Path("params.yaml")).is_file() else DEFAULTS)
        if not equals:
            group = group_at(Experiment, raw, path)
            fields = group.model_fields if group else ()
            return _beginning(incomplete, (f"{'.'.join([*path, name])}=" for name in fields))
        if last == "name":
            *path, last = path
        parent = group_at(Experiment, raw, path)
        choice = choice_of(parent.model_fields.get(last)) if parent else None
        if choice is not None:
            table = () if path else raw.get(choice.kind) or ()
            found = {*(_labels([choice.kind]) if choice.kind == "algorithms" else choice.names), *table}
            return _beginning(incomplete, (f"{key}={name}" for name in sorted(found)))
    return []


def _labels(chosen: Iterable[str]) -> list[str]:
    """Names of the plug-ins of some kinds; references are algorithms."""
    found = {name for kind in chosen for name in [*plugins.names(kind), *(REFERENCES if kind == "algorithms" else ())]}
    return sorted(found)


def _beginning(incomplete: str, words: Iterable[str]) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]
