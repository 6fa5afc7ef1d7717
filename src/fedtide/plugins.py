"""Plug-ins: one file is one algorithm, partition, model, ...; the file's stem is its name.

A *kind* is a sub-package (``algorithms``, ``models``, ...) whose ``base.py`` defines a :class:`Plugin` subclass. Every
other module of that sub-package defines exactly one public subclass of it. Nothing is imported before it is asked for.

Folders named in the environment variable ``FEDTIDE_PLUGINS`` (separated as in ``PATH``) are searched too: a file
``algorithms/foo.py`` below one of them is the algorithm ``foo``.
"""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from fedtide.errors import SettingsError, nearest
from fedtide.source import closure, source_file

KINDS = (
    "algorithms",
    "data",
    "exchange",
    "initialisation",
    "models",
    "objectives",
    "participation",
    "partitions",
    "scenarios",
    "selection",
    "weighting",
)


class SettingsModel(BaseModel):
    """Immutable, refuses unknown keys and infinite numbers, and documents every field from its description."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)


class PluginSettings(SettingsModel):
    """Settings of one plug-in; ``name`` says which."""

    name: str = Field(description="which one: the name of its file")


class Plugin:
    """Something that is chosen by name and has settings."""

    Settings: ClassVar[type[PluginSettings]] = PluginSettings

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    @classmethod
    def summary(cls) -> str:
        """First line of the docstring."""
        return (inspect.getdoc(cls) or "").strip().split("\n")[0]


P = TypeVar("P", bound=Plugin)


def Tunable(  # noqa: N802 - reads as a field type in a Settings class
    default: Any, *, low: float, high: float, log: bool = False, description: str, **bounds: Any
) -> Any:
    """A numeric setting with a default search range for ``fedtide tune``.

    ``low`` and ``high`` bound the search, ``log`` searches the exponent; ``bounds`` (``ge``, ``gt``, ``le``, ``lt``)
    say which values are valid at all.
    """
    return Field(
        default,
        description=description,
        json_schema_extra={"tune": {"low": low, "high": high, "log": log}},
        **bounds,
    )


def _package(kind: str) -> Any:
    if kind not in KINDS:
        raise SettingsError(f"no kind {kind!r}; known kinds: {', '.join(KINDS)}")
    package = importlib.import_module(f"fedtide.{kind}")
    for root in filter(None, os.environ.get("FEDTIDE_PLUGINS", "").split(os.pathsep)):
        folder = str(Path(root).resolve() / kind)
        if folder not in package.__path__:
            package.__path__.append(folder)
    return package


def names(kind: str) -> list[str]:
    """Names of all plug-ins of a kind, sorted."""
    found = {module.name for module in pkgutil.iter_modules(_package(kind).__path__)}
    public = _package(kind).__dict__.get("NOT_PLUGINS", ())
    return sorted(name for name in found if name != "base" and not name.startswith("_") and name not in public)


def load(kind: str, name: str) -> type[Plugin]:
    """The class of the plug-in ``name`` of ``kind``.

    Raises:
        SettingsError: there is no such plug-in; the message names the nearest one.
    """
    known = names(kind)
    if name not in known:
        raise SettingsError(nearest(f"unknown name {name!r} in {kind}", name, known))
    module = importlib.import_module(f"fedtide.{kind}.{name}")
    found = [
        value
        for key, value in vars(module).items()
        if inspect.isclass(value)
        and issubclass(value, Plugin)
        and value.__module__ == module.__name__
        and not key.startswith("_")
    ]
    if len(found) != 1:
        raise SettingsError(f"{kind}/{name}.py must define exactly one public plug-in class, found {len(found)}")
    return found[0]


def source_files(kind: str, name: str) -> list[Path]:
    """Source files that make a plug-in: its own, and those of the modules it imports, directly or not."""
    files = (source_file(module) for module in closure([load(kind, name).__module__]))
    return sorted(file for file in files if file is not None)
