"""Plug-ins: one file is one algorithm, partition, model, ...; the file's stem is its name.

A *kind* is a sub-package (``algorithms``, ``models``, ...) whose ``base.py`` defines a :class:`Plugin` subclass. Every
other module of that sub-package without a leading underscore defines exactly one public subclass of it. Nothing is
imported before it is asked for.

Folders named in the environment variable ``FEDTIDE_PLUGINS`` (separated as in ``PATH``) are searched too, and those of
installed packages (:mod:`fedtide.core.installed`): a file ``algorithms/foo.py`` below one of them is the algorithm ``foo``. A
file that cannot be used, or a name that two files have, is an error where it is used, a mark in lists, and nothing anywhere
else.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import os
import pkgutil
from abc import ABC
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar, overload

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fedtide.core.bounds import LARGEST
from fedtide.core.errors import SettingsError, nearest, shortened
from fedtide.core.extras import not_installed
from fedtide.core.faults import PluginCrash, PluginError, describe_fault
from fedtide.core.installed import installed_packages
from fedtide.core.source import source_file, tree

KINDS = (
    "aggregation",
    "algorithms",
    "attack",
    "data",
    "detectors",
    "drift",
    "exchange",
    "initialisation",
    "models",
    "objectives",
    "participation",
    "partitions",
    "scenarios",
    "selection",
    "uplink",
    "weighting",
)


class _Incidental:
    """Marks a setting that changes no number of a run: labels, places, speed."""


INCIDENTAL = _Incidental()


class _OmitDefault:
    """Marks a setting whose default is left out of the canonical form, so that adding it changes no hash of settings."""


OMIT_DEFAULT = _OmitDefault()


@functools.cache
def _unbounded(kind: type[BaseModel]) -> list[str]:
    """Settings without an upper bound of their own."""
    fields = kind.model_fields.items()
    return [
        key for key, field in fields if not any(hasattr(item, "le") or hasattr(item, "lt") for item in field.metadata)
    ]


class SettingsModel(BaseModel):
    """Immutable, refuses unknown keys and infinite numbers, and documents every field from its description."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)

    @model_validator(mode="after")
    def _of_ordinary_size(self) -> Self:
        for key in _unbounded(type(self)):
            value = getattr(self, key)
            if isinstance(value, int) and abs(value) > LARGEST:
                raise SettingsError(f"{key} = {shortened(str(value))} should lie between -{LARGEST} and {LARGEST}")
        return self

    def canonical(self) -> dict[str, Any]:
        """The settings that can change a number of a run, JSON-able: all but those marked ``INCIDENTAL``.

        A setting marked ``OMIT_DEFAULT`` is in it only where it is not at its default.
        """
        values = self.model_dump(mode="json")
        for key, field in type(self).model_fields.items():
            value = getattr(self, key)
            default = field.default
            if isinstance(value, PluginSettings) and value.name == default:
                default = type(value)(name=default)
            if INCIDENTAL in field.metadata or (OMIT_DEFAULT in field.metadata and value == default):
                del values[key]
            elif isinstance(value, SettingsModel):
                values[key] = value.canonical()
        return values


class PluginSettings(SettingsModel):
    """Settings of the plug-in ``name``."""

    name: str = Field(description="which one: the name of its file")


class Plugin(ABC):
    """Something that is chosen by name and has settings; ``kind`` is the sub-package that it lives in.

    A plug-in with settings of its own nests a class ``Settings`` and declares ``settings: Settings``.
    """

    kind: ClassVar[str] = ""
    Settings: ClassVar[type[PluginSettings]] = PluginSettings
    settings: Any

    @property
    def needs_classes(self) -> bool:
        """Whether it needs samples of one class each, with its settings; runs of other tasks then refuse it."""
        return False

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
    extra: Any = {"tune": {"low": low, "high": high, "log": log}}
    return Field(default, description=description, json_schema_extra=extra, **bounds)


def user_roots() -> list[Path]:
    """The folders named in ``FEDTIDE_PLUGINS``."""
    named = os.environ.get("FEDTIDE_PLUGINS", "")
    return [_resolved(Path(root).absolute()) for root in named.split(os.pathsep) if root]


@functools.lru_cache(maxsize=64)
def _resolved(folder: Path) -> Path:
    """Resolved once: every setting that names a plug-in asks for the folders."""
    return folder.resolve()


def _other_folders(*kinds: str) -> tuple[Path, ...]:
    """Folders of plug-ins of some kinds that do not ship with fedtide: the user's and those of installed packages."""
    return _inside(tuple(dict.fromkeys([*user_roots(), *installed_packages().values()])), kinds)


@functools.lru_cache(maxsize=256)
def _inside(roots: tuple[Path, ...], kinds: tuple[str, ...]) -> tuple[Path, ...]:
    return tuple(root / kind for root in roots for kind in kinds)


def _package(kind: str) -> Any:
    if kind not in KINDS:
        raise SettingsError(f"no kind {kind!r}; known kinds: {', '.join(KINDS)}")
    package = importlib.import_module(f"fedtide.{kind}")
    if others := _other_folders(kind):
        package.__path__.extend(str(folder) for folder in others if str(folder) not in package.__path__)
    return package


def names(kind: str) -> list[str]:
    """Names of all plug-ins of a kind, sorted."""
    return list(_places(kind))


def _places(kind: str) -> dict[str, list[Path]]:
    """The folders that have a plug-in of a name; more than one is a clash."""
    own, *others = dict.fromkeys(_package(kind).__path__)  # its own folder changes with fedtide only
    return _found(((own, 0), *((path, _changed(path)) for path in others)))


@functools.lru_cache(maxsize=256)
def _found(folders: tuple[tuple[str, int], ...]) -> dict[str, list[Path]]:
    """Names in folders, each with the time of its last change: thousands of settings may be read that name plug-ins."""
    found: dict[str, list[Path]] = {}
    for path, _ in folders:
        for module in pkgutil.iter_modules([path]):
            if module.name != "base" and not module.name.startswith("_"):
                found.setdefault(module.name, []).append(Path(path))
    return dict(sorted(found.items()))


_folder = functools.lru_cache(maxsize=256)(Path)


def _changed(folder: str) -> int:
    try:
        return _folder(folder).stat().st_mtime_ns
    except OSError:  # a folder of the user's need not have all kinds
        return 0


def module_of(kind: str, name: str) -> str:
    """The module of the plug-in ``name`` of ``kind``; it is not imported.

    Raises:
        SettingsError: there is no such plug-in; the message names the nearest one.
        PluginError: several files have this name, and not the same content.
    """
    known = _places(kind)
    if name not in known:
        raise SettingsError(nearest(f"unknown name {shortened(name)!r} in {kind}", name, known))
    if len(known[name]) > 1:
        files = [folder / f"{name}.py" for folder in known[name]]
        # Copies are one plug-in: a saved model brings those that it needs.
        if len({file.read_bytes() if file.is_file() else file for file in files}) > 1:
            several = " and ".join(map(str, files))
            raise PluginError(f"{kind} has two plug-ins named {name}: {several}; rename or remove one")
    return f"fedtide.{kind}.{name}"


@overload
def load(kind: str, name: str) -> type[Plugin]: ...
@overload
def load(kind: type[P], name: str) -> type[P]: ...
def load(kind: str | type[Plugin], name: str) -> type[Plugin]:
    """The class of the plug-in ``name`` of a kind, which is given by its name or by its base class.

    Raises:
        SettingsError: there is no such plug-in.
        PluginError: its file cannot be imported, or does not define exactly one plug-in of its kind.
    """
    folder = kind if isinstance(kind, str) else kind.kind
    return _only_plugin(_imported(folder, name), folder)


@functools.cache
def _only_plugin(module: Any, folder: str) -> type[Plugin]:
    """The plug-in that a module defines."""
    file: str = module.__file__
    public = [
        value
        for key, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__ and not key.startswith("_")
    ]
    found: list[Any] = [cls for cls in public if issubclass(cls, Plugin) and cls.kind == folder]
    if len(found) != 1:
        others = found or [cls for cls in public if not issubclass(cls, PluginSettings)]
        listed = ", ".join(f"{cls.__name__} in line {_line(cls)}" for cls in others)
        raise PluginError(
            f"{file}: must define exactly one public plug-in class, a subclass of {_base(folder).__name__}; found "
            f"{len(found)}{f' ({listed})' if listed else ''}"
        )
    chosen: type[Plugin] = found[0]
    _refuse_incomplete(chosen, file)
    return chosen


def _imported(kind: str, name: str) -> Any:
    full = module_of(kind, name)
    try:
        return importlib.import_module(full)
    except (Exception, SystemExit) as error:
        folders = [Path(folder) for folder in _package(kind).__path__]
        file = next((path for folder in folders if (path := folder / f"{name}.py").is_file()), folders[0] / name)
        if file.parent not in _other_folders(kind) and (line := not_installed(error, f"{name} in {kind}")):
            raise PluginError(line) from None
        raise PluginError(describe_fault(error, folders, file)) from error


def _base(kind: str) -> type[Plugin]:
    """The base class of a kind."""
    values: Iterable[Any] = vars(importlib.import_module(f"fedtide.{kind}.base")).values()
    found: type[Plugin] = next(item for item in values if isinstance(item, type) and vars(item).get("kind") == kind)
    return found


def common_settings(kind: str) -> frozenset[str]:
    """Settings that all plug-ins of a kind have, but for ``name``."""
    return frozenset(_base(kind).Settings.model_fields) - {"name"}


def _line(cls: type) -> int:
    return inspect.getsourcelines(cls)[1]


def _refuse_incomplete(cls: type[Plugin], file: str) -> None:
    line: Iterable[Any] = cls.__mro__
    base = next(item for item in line if vars(item).get("kind") == cls.kind)
    missing = [name for name in dir(cls) if getattr(getattr(cls, name, None), "__isabstractmethod__", False)]
    problem = f"does not define {', '.join(missing)}" if missing else ""
    if not (inspect.isclass(cls.Settings) and issubclass(cls.Settings, base.Settings)):
        problem = f"needs a nested class Settings({base.Settings.__name__}), or none"
    if problem:
        raise PluginError(f"{file}:{_line(cls)}: {cls.__name__} {problem}")


def create(kind: type[P], settings: PluginSettings) -> P:
    """The plug-in that ``settings`` are for."""
    return load(kind, settings.name)(settings)


def docstrings(kind: str, name: str) -> list[str]:
    """Docstrings of the public classes of a plug-in's file, its own first, read from the source: nothing is imported.

    Raises:
        PluginError: the source cannot be read.
    """
    file = source_file(module_of(kind, name))
    try:
        classes = [node for node in tree(file).body if isinstance(node, ast.ClassDef)] if file else []
    except (SyntaxError, ValueError, RecursionError) as error:
        raise PluginError(describe_fault(error, [], file)) from None
    public = [node for node in classes if not node.name.startswith("_") and not node.name.endswith("Settings")]
    return list(filter(None, map(ast.get_docstring, sorted(public, key=_is_helper))))


def _is_helper(node: ast.ClassDef) -> bool:
    """Whether a class cannot be a plug-in, since it inherits from nothing, or is a tuple with names."""
    return not any(isinstance(base, ast.Name) and base.id != "NamedTuple" for base in node.bases)


def summary(kind: str, name: str) -> str:
    """First line of a plug-in's docstring; see :func:`docstrings`."""
    return next(iter(docstrings(kind, name)), "").split("\n")[0]


def broken(kind: str, name: str) -> str | None:
    """Why a plug-in cannot be used, in one line; ``None`` if it can. Files in the user's folders are imported for it."""
    try:
        file = source_file(module_of(kind, name))
        if file is None or file.parent in _other_folders(kind):
            load(kind, name)
        else:
            summary(kind, name)
    except PluginError as error:
        return str(error)
    return None


def unusable(kind: str, name: str) -> str | None:
    """The same, also where packages of an extra are not installed; every file is imported for it."""
    try:
        load(kind, name)
    except PluginError as error:
        return str(error)
    return None


@contextmanager
def naming_plugins() -> Iterator[None]:
    """Exceptions raised in a user's plug-in become a :class:`PluginCrash` with file and line; errors about settings pass."""
    try:
        yield
    except (SettingsError, PluginCrash):
        raise
    except (Exception, SystemExit) as error:
        if fault := describe_fault(error, _other_folders(*KINDS)):
            raise PluginCrash(fault) from error
        raise
