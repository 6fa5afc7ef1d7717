"""What the shell proposes for words of a command line: kinds and names of plug-ins, settings and their values."""

from contextlib import suppress
from pathlib import Path

import typer

from fedtide.core import plugins
from fedtide.core.discovery.shipped import DEFAULTS
from fedtide.core.errors import SettingsError
from fedtide.settings.reading.references import REFERENCES


def kinds(incomplete: str) -> list[str]:
    """Kinds of plug-ins that begin with a text."""
    return [kind for kind in plugins.KINDS if kind.startswith(incomplete)]


def names(context: typer.Context, incomplete: str) -> list[str]:
    """Names of plug-ins: of the kind before on the command line, or of all kinds."""
    from fedtide.cli.commands.describe import kind_of

    with suppress(SettingsError):
        chosen = context.params.get("kind")
        found = {name for kind in ([kind_of(chosen)] if chosen else plugins.KINDS) for name in _labels(kind)}
        return sorted(name for name in found if name.startswith(incomplete))
    return []


def settings(incomplete: str) -> list[str]:
    """``a.b=`` for ``--set``, in the groups that the settings file has, and after the sign the plug-ins to choose from."""
    from fedtide.settings.choices import choice_of, group_at
    from fedtide.settings.experiment import Experiment
    from fedtide.settings.reading.yaml_files import read_mapping

    key, equals, _ = incomplete.partition("=")
    *path, last = key.removesuffix(".name" if equals else "").split(".")
    with suppress(SettingsError):
        raw = read_mapping(file if (file := Path("params.yaml")).is_file() else DEFAULTS)
        group = group_at(Experiment, raw, path)
        found = [".".join([*path, f"{name}="]) for name in (group.model_fields if group else ())]
        if equals:
            choice = choice_of(group.model_fields.get(last)) if group else None
            known = {*choice.names, *_labels(choice.kind), *(raw.get(choice.kind) or ())} if choice else ()
            found = [f"{key}={name}" for name in sorted(known)]
        return [word for word in found if word.startswith(incomplete)]
    return []


def _labels(kind: str) -> list[str]:
    """Names of the plug-ins of a kind; references are algorithms."""
    return [*(plugins.names(kind) if kind else ()), *(REFERENCES if kind == "algorithms" else ())]
