"""Plug-ins: one file is one algorithm, partition, model, ...; the file's stem is its name.

A *kind* is a package (``methods/algorithms``, ``training/models``, ...) whose ``base.py`` defines a :class:`Plugin` subclass.
Every other module of it without a leading underscore defines exactly one public subclass. Nothing is imported before it is
asked for.

A file ``algorithms/foo.py`` below a folder in ``FEDTIDE_PLUGINS`` (separated as in ``PATH``), or in a package that an installed
distribution names in an entry point, is the algorithm ``foo``. A file that cannot be used, or a name that two files have, is
an error only where it is used, and a mark in lists.
"""

import ast
import functools
import importlib
import inspect
import os
import re
import sys
from abc import ABC
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Self, TypeVar, overload

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fedtide.core.bounds import LARGEST
from fedtide.core.discovery.faults import PluginCrash, PluginError, describe_fault
from fedtide.core.discovery.source import forget_places, installed_packages, tree
from fedtide.core.errors import SettingsError, nearest, shortened
from fedtide.core.extras import not_installed

_PACKAGE = Path(__file__).parents[1]

HOMES = {file.parent.name: file.parent for file in _PACKAGE.glob("*/*/base.py")}
"""Folders of fedtide's own plug-ins, by kind: the packages with a ``base.py``."""

KINDS = tuple(sorted(HOMES))


@functools.cache
def package_of(kind: str) -> str:
    """The package of a kind's plug-ins, ``fedtide.methods.algorithms`` of ``algorithms``."""
    return ".".join(("fedtide", *HOMES[kind].relative_to(_PACKAGE).parts))


class Mark(Enum):
    """What is special about a setting, among the annotations of its field."""

    INCIDENTAL = "changes no number of a run: labels, places, speed"
    OMIT_DEFAULT = "is left out of the canonical form at its default, so that adding it changes no hash of settings"


INCIDENTAL, OMIT_DEFAULT = Mark.INCIDENTAL, Mark.OMIT_DEFAULT


@functools.cache
def _unbounded(kind: type[BaseModel]) -> list[str]:
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
        """The settings that can change a number of a run, JSON-able; see the marks."""
        values: dict[str, Any] = {}
        dumped = self.model_dump(mode="json")
        for key, field in type(self).model_fields.items():
            value = getattr(self, key)
            default = field.default
            if isinstance(value, PluginSettings) and value.name == default:
                default = type(value)(name=default)
            if not (INCIDENTAL in field.metadata or (OMIT_DEFAULT in field.metadata and value == default)):
                values[key] = _canonical(value, dumped[key])
        return values


def _canonical(value: Any, dumped: Any) -> Any:
    """The canonical form of a setting's value, which is JSON-able as ``dumped``."""
    if isinstance(value, SettingsModel):
        return value.canonical()
    if isinstance(value, tuple):
        return [_canonical(item, plain) for item, plain in zip(value, dumped, strict=True)]
    return dumped


class PluginSettings(SettingsModel):
    """Settings of the plug-in ``name``."""

    name: str = Field(description="which one: the name of its file")


class Plugin(ABC):
    """Something that is chosen by name; ``kind`` is its package. Its settings are a nested class ``Settings``, if any."""

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

    ``log`` searches the exponent; ``bounds`` (``ge``, ``gt``, ``le``, ``lt``) say which values are valid at all.
    """
    extra: Any = {"tune": {"low": low, "high": high, "log": log}}
    return Field(default, description=description, json_schema_extra=extra, **bounds)


def user_roots() -> list[Path]:
    """The folders named in ``FEDTIDE_PLUGINS``."""
    named = os.environ.get("FEDTIDE_PLUGINS", "")
    return [_resolved(Path(root).absolute()) for root in named.split(os.pathsep) if root]


# Every setting that names a plug-in asks for the folders.
_resolved, _path = functools.lru_cache(maxsize=64)(Path.resolve), functools.lru_cache(maxsize=1024)(Path)


def _other_folders(*kinds: str) -> list[Path]:
    """Folders of plug-ins of some kinds that do not ship with fedtide: the user's and those of installed packages."""
    return [root / kind for root in (*user_roots(), *installed_packages().values()) for kind in kinds]


def folders(kind: str) -> list[Path]:
    """The folders of a kind's plug-ins, fedtide's own first; the kind's package finds modules in these alone."""
    if kind not in KINDS:
        raise SettingsError(f"no kind {kind!r}; known kinds: {', '.join(KINDS)}")
    package = importlib.import_module(package_of(kind))
    places = list(dict.fromkeys([str(HOMES[kind]), *map(str, _other_folders(kind))]))
    if package.__path__ != places:
        package.__path__[:] = places
        _forget_others(package, places)
    return [_path(folder) for folder in places]


def _forget_others(package: ModuleType, places: Sequence[str]) -> None:
    """Forget the modules of a package that were imported from other places, which may have had the same names."""
    prefix = f"{package.__name__}."
    for name in [name for name in sys.modules if name.startswith(prefix) and "." not in name.removeprefix(prefix)]:
        if str(Path(getattr(sys.modules[name], "__file__", None) or "").parent) not in places:
            del sys.modules[name]
            vars(package).pop(name.removeprefix(prefix), None)
    forget_places()


def names(kind: str) -> list[str]:
    """Names of all plug-ins of a kind, sorted."""
    files = {entry.name for folder in folders(kind) if folder.is_dir() for entry in os.scandir(folder)}
    return sorted(name for file in files if file.endswith(".py") and _NAME.fullmatch(name := file.removesuffix(".py")))


_NAME = re.compile(r"(?!_|base$)[^./\\]{1,200}")  # longer ones name no file


def file_of(kind: str, name: str) -> Path:
    """The file of the plug-in ``name`` of ``kind``; it is not imported.

    Raises:
        SettingsError: there is no such plug-in.
        PluginError: several files have this name, and not the same content.
    """
    places = [f"{folder}/{name}.py" for folder in folders(kind)] if _NAME.fullmatch(name) else []
    files = [file for place in places if (file := _path(place)).is_file()]
    if not files:
        raise SettingsError(nearest(f"unknown name {shortened(name)!r} in {kind}", name, names(kind)))
    # Copies are one plug-in: a saved model brings those that it needs.
    if len(files) > 1 and len({file.read_bytes() for file in files}) > 1:
        several = " and ".join(map(str, files))
        raise PluginError(f"{kind} has two plug-ins named {name}: {several}; rename or remove one")
    return files[0]


def module_of(kind: str, name: str) -> str:
    """The module of the plug-in ``name`` of ``kind``; raises as :func:`file_of`."""
    file_of(kind, name)
    return f"{package_of(kind)}.{name}"


@overload
def load(kind: str, name: str) -> type[Plugin]: ...
@overload
def load(kind: type[P], name: str) -> type[P]: ...
def load(kind: str | type[Plugin], name: str) -> type[Plugin]:
    """The class of the plug-in ``name`` of a kind, given by its name or its base class.

    Raises:
        SettingsError: there is no such plug-in.
        PluginError: its file cannot be imported, or does not define exactly one plug-in of its kind.
    """
    folder = kind if isinstance(kind, str) else kind.kind
    file = file_of(folder, name)
    try:
        module = importlib.import_module(f"{package_of(folder)}.{name}")
    except (Exception, SystemExit) as error:
        if file.parent == HOMES[folder] and (line := not_installed(error, f"{name} in {folder}")):
            raise PluginError(line) from None
        raise PluginError(describe_fault(error, folders(folder), file)) from error
    return _only_plugin(module, folder)


@functools.cache
def _only_plugin(module: Any, kind: str) -> type[Plugin]:
    file, base = module.__file__, _base(kind)
    public = [
        value
        for key, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__ and not key.startswith("_")
    ]
    found: list[Any] = [cls for cls in public if issubclass(cls, base)]
    if len(found) != 1:
        others = found or [cls for cls in public if not issubclass(cls, PluginSettings)]
        listed = ", ".join(f"{cls.__name__} in line {_line(cls)}" for cls in others)
        wanted = f"must define exactly one public plug-in class, a subclass of {base.__name__}"
        raise PluginError(f"{file}: {wanted}; found {len(found)}{f' ({listed})' if listed else ''}")
    chosen: type[Plugin] = found[0]
    problem = ""
    if missing := sorted(chosen.__abstractmethods__):
        problem = f"does not define {', '.join(missing)}"
    if not (inspect.isclass(chosen.Settings) and issubclass(chosen.Settings, base.Settings)):
        problem = f"requires a nested class Settings({base.Settings.__name__}), or none"
    if problem:
        raise PluginError(f"{file}:{_line(chosen)}: {chosen.__name__} {problem}")
    return chosen


@functools.cache
def _base(kind: str) -> type[Plugin]:
    """The base class of a kind: the one in its ``base.py`` that declares it."""
    defined = vars(importlib.import_module(f"{package_of(kind)}.base")).values()
    classes = (cls for cls in defined if inspect.isclass(cls) and issubclass(cls, Plugin))
    return next(cls for cls in classes if vars(cls).get("kind") == kind)


def common_settings(kind: str) -> frozenset[str]:
    """Settings that all plug-ins of a kind have, but for ``name``."""
    return frozenset(_base(kind).Settings.model_fields) - {"name"}


def _line(cls: type) -> int:
    return inspect.getsourcelines(cls)[1]


def create(kind: type[P], settings: PluginSettings) -> P:
    """The plug-in that ``settings`` are for."""
    return load(kind, settings.name)(settings)


def docstrings(kind: str, name: str) -> list[str]:
    """Docstrings of the public classes of a plug-in's file, its own first, read from the source.

    Raises:
        PluginError: the source cannot be read.
    """
    file = file_of(kind, name)
    try:
        classes = [node for node in tree(file).body if isinstance(node, ast.ClassDef)]
    except (SyntaxError, ValueError, RecursionError) as error:
        raise PluginError(describe_fault(error, [], file)) from None
    public = [node for node in classes if not node.name.startswith("_") and not node.name.endswith("Settings")]
    return list(filter(None, map(ast.get_docstring, sorted(public, key=_is_helper))))


def _is_helper(node: ast.ClassDef) -> bool:
    """Whether a class cannot be a plug-in: it inherits from nothing, or is a NamedTuple."""
    return not any(isinstance(base, ast.Name) and base.id != "NamedTuple" for base in node.bases)


def summary(kind: str, name: str) -> str:
    """First line of a plug-in's docstring; see :func:`docstrings`."""
    return next(iter(docstrings(kind, name)), "").split("\n")[0]


def broken(kind: str, name: str, *, imported: bool = False) -> str | None:
    """Why a plug-in cannot be used, in one line; ``None`` if it can. Imports it if it is not fedtide's, or if ``imported``."""
    try:
        if imported or file_of(kind, name).parent != HOMES[kind]:
            load(kind, name)
        else:
            summary(kind, name)
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
