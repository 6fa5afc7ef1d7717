"""Plug-ins: one file is one algorithm, partition, model, ...; the file's stem is its name.

A *kind* is a sub-package (``algorithms``, ``models``, ...) whose ``base.py`` defines a :class:`Plugin` subclass. Every
other module of that sub-package without a leading underscore defines exactly one public subclass of it. Nothing is
imported before it is asked for.

Folders named in the environment variable ``FEDTIDE_PLUGINS`` (separated as in ``PATH``) are searched too: a file
``algorithms/foo.py`` below one of them is the algorithm ``foo``.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import pkgutil
from abc import ABC
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar, overload

from pydantic import BaseModel, ConfigDict, Field

from fedtide.core.errors import SettingsError, nearest
from fedtide.core.source import source_file, tree

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


class _Incidental:
    """Marks a setting that changes no number of a run: labels, places, speed."""


INCIDENTAL = _Incidental()


class SettingsModel(BaseModel):
    """Immutable, refuses unknown keys and infinite numbers, and documents every field from its description.

    Attributes:
        renamed: what to write instead of a key of an earlier version, in the words of an error message.
    """

    renamed: ClassVar[Mapping[str, str]] = {}

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)

    def canonical(self) -> dict[str, Any]:
        """The settings that can change a number of a run, JSON-able: all but those marked ``INCIDENTAL``."""
        values = self.model_dump(mode="json")
        for key, field in type(self).model_fields.items():
            if INCIDENTAL in field.metadata:
                del values[key]
            elif isinstance(value := getattr(self, key), SettingsModel):
                values[key] = value.canonical()
        return values


class PluginSettings(SettingsModel):
    """Settings of one plug-in; ``name`` says which."""

    name: str = Field(description="which one: the name of its file")


class Plugin(ABC):
    """Something that is chosen by name and has settings.

    A plug-in with settings of its own nests a class ``Settings`` and declares ``settings: Settings``.

    Attributes:
        kind: the sub-package its kind lives in.
    """

    kind: ClassVar[str] = ""
    Settings: ClassVar[type[PluginSettings]] = PluginSettings
    settings: Any

    def __init__(self, settings: Any) -> None:
        self.settings = settings


P = TypeVar("P", bound=Plugin)


def Tunable(  # noqa: N802 - reads as a field type in a Settings class
    default: Any, *, low: float, high: float, log: bool = False, description: str, **bounds: Any
) -> Any:
    """A numeric setting with a default search range for ``fedtide tune``.

    >>> class Settings(PluginSettings):
    ...     pull: float = Tunable(0.1, low=0.01, high=1.0, log=True, ge=0, description="strength of the pull")
    >>> Settings(name="mine").pull
    0.1

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
    return sorted(name for name in found if name != "base" and not name.startswith("_"))


def module_of(kind: str, name: str) -> str:
    """The module of the plug-in ``name`` of ``kind``; it is not imported.

    Raises:
        SettingsError: there is no such plug-in; the message names the nearest one.
    """
    known = names(kind)
    if name not in known:
        raise SettingsError(nearest(f"unknown name {name!r} in {kind}", name, known))
    return f"fedtide.{kind}.{name}"


@overload
def load(kind: str, name: str) -> type[Plugin]: ...
@overload
def load(kind: type[P], name: str) -> type[P]: ...
def load(kind: str | type[Plugin], name: str) -> type[Plugin]:
    """The class of the plug-in ``name`` of a kind, which is given by its name or by its base class.

    Raises:
        SettingsError: there is no such plug-in, its file does not define exactly one, or it lacks a method.
    """
    base = Plugin if isinstance(kind, str) else kind
    folder = kind if isinstance(kind, str) else kind.kind
    module = importlib.import_module(module_of(folder, name))
    found = [
        value
        for key, value in vars(module).items()
        if inspect.isclass(value)
        and issubclass(value, base)
        and value.__module__ == module.__name__
        and not key.startswith("_")
    ]
    if len(found) != 1:
        raise SettingsError(f"{folder}/{name}.py must define exactly one public plug-in class, found {len(found)}")
    if lacking := sorted(getattr(found[0], "__abstractmethods__", ())):
        raise SettingsError(f"{folder}/{name}.py: {found[0].__name__} has to define {', '.join(lacking)}")
    return found[0]


def create(kind: type[P], settings: PluginSettings) -> P:
    """The plug-in that ``settings`` are for."""
    return load(kind, settings.name)(settings)


def summary(kind: str, name: str) -> str:
    """First line of a plug-in's docstring, read from its source: nothing is imported."""
    file = source_file(module_of(kind, name))
    classes = [node for node in tree(file).body if isinstance(node, ast.ClassDef)] if file else []
    public = [node for node in classes if not node.name.startswith("_") and not node.name.endswith("Settings")]
    documented = next(filter(None, map(ast.get_docstring, public)), "")
    return documented.split("\n")[0]
