"""Modules of the user's, found as Python finds modules and in the working directory, and what they import."""

import functools
import importlib
import inspect
import sys
import sysconfig
import typing
from collections.abc import Iterator, Mapping
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any, TypeVar

from fedtide.core.discovery.faults import describe_fault
from fedtide.core.discovery.source import imported_names, spec_of
from fedtide.core.errors import SettingsError, nearest, shortened

Made = TypeVar("Made")

_STANDARD = Path(sysconfig.get_path("stdlib"))
_INSTALLED = frozenset({"site-packages", "dist-packages"})


def named(path: str, key: str) -> Any:
    """The object that a path ``module:name`` or ``module.name`` stands for; after the colon, the name may have dots.

    Raises:
        SettingsError: about the setting ``key``: there is no such module or name, or the module cannot be imported.
    """
    module, name = _parts(path, key)
    file = module_file(module)
    if file is None:
        raise _missing(path, key, module)
    try:
        found: Any = importlib.import_module(module)
    except (Exception, SystemExit) as error:
        raise SettingsError(f"{key} = {path!r}: {describe_fault(error, [_root(file)], file)}") from error
    for part in name.split("."):
        if not hasattr(found, part):
            known = [key for key, value in vars(found).items() if callable(value) and not key.startswith("_")]
            raise SettingsError(nearest(f"{key} = {path!r}: {file} has no {part}", part, known[:_LISTED]))
        found = getattr(found, part)
    return found


def make(path: str, arguments: Mapping[str, Any], kind: type[Made], key: str, **defaults: Any) -> Made:
    """What the class or function that a path stands for makes, which has to be a ``kind``.

    ``key`` is the setting with ``path`` and ``arguments``; ``defaults`` are given where there are such parameters.

    Raises:
        SettingsError: it cannot be imported or called so, or makes something else.
    """
    maker = maker_of(path, kind, f"{key}.path")
    try:
        parameters: Mapping[str, inspect.Parameter] = inspect.signature(maker).parameters
    except (TypeError, ValueError):  # no signature
        parameters = {}
    names = [name for name, each in parameters.items() if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    is_open = not parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    if not is_open and (unknown := sorted(arguments.keys() - set(names))):
        raise SettingsError(nearest(f"{key}.arguments: {path} takes no {unknown[0]!r}", unknown[0], names))
    given = {name: value for name, value in defaults.items() if name in names} | dict(arguments)
    try:
        found = maker(**given)
    except (Exception, SystemExit) as error:
        raise fault_of(error, path, f"{key}.path") from error
    if not isinstance(found, kind):
        raise SettingsError(f"{_wanted(path, kind, f'{key}.path')}, got {type(found).__name__}")
    return found


def maker_of(path: str, kind: type, key: str) -> Any:
    """The class or function that a path stands for, if a settings file may have it called.

    A class has to be a ``kind``; a function has to be annotated to return one, or to be the user's own, which is as safe to
    call as to import.

    Raises:
        SettingsError: it cannot be imported, or is something else.
    """
    maker = named(path, key)
    wanted = _wanted(path, kind, key)
    if isinstance(maker, type):
        if not issubclass(maker, kind):
            raise SettingsError(f"{wanted}, got the class {maker.__name__}")
    elif not inspect.isroutine(maker):
        raise SettingsError(f"{wanted}, got {type(maker).__name__}")
    elif (returned := _returned(maker)) is not None and not issubclass(kind, returned):
        if not issubclass(returned, kind):
            raise SettingsError(f"{wanted}, got a function that returns {returned.__name__}")
    elif returned is not kind and not _is_users(maker):
        raise SettingsError(f"{wanted}; this one is not annotated to return it, so call it in a function of your own")
    return maker


def fault_of(error: BaseException, path: str, key: str) -> SettingsError:
    """The error in one line of an exception that the code behind a path ``module:name`` has raised."""
    file = module_file(_parts(path, key)[0])
    what = describe_fault(error, [_root(file)] if file else [], file)
    return SettingsError(f"{key} = {path!r}: {what}")


def own_files(path: str, key: str) -> dict[str, Path]:
    """Source files of the module in ``module:name`` and of all it imports outside of installed packages, by module.

    Raises:
        SettingsError: there is no such module, or a source cannot be read.
    """
    module = _parts(path, key)[0]
    if module_file(module) is None:
        raise _missing(path, key, module)
    return {name: file for name, file in _reached(module, key) if file.is_file() and _is_own(file)}


def libraries(path: str, key: str) -> dict[str, str]:
    """Versions of the installed packages that the module in ``module:name`` and what it imports use."""
    tops = {name.partition(".")[0] for name, file in _reached(_parts(path, key)[0], key) if not _is_own(file)}
    known = _packages()
    names = {name for top in tops for name in known.get(top, ())}
    return {name: version(name) for name in sorted(names)}


_packages = functools.cache(packages_distributions)  # it reads the records of everything that is installed


def module_file(module: str) -> Path | None:
    """The file of a module, ``None`` if there is none; nothing is imported for it."""
    _search_working_directory()
    if (spec := spec_of(module)) is None:
        return None
    if spec.origin is None or not Path(spec.origin).is_file():  # a package without __init__.py
        folders = list(spec.submodule_search_locations or ())
        return Path(folders[0]) if folders else None
    return Path(spec.origin)


_LISTED = 12  # most names of a module that a message lists


def _parts(path: str, key: str) -> tuple[str, str]:
    module, _, name = path.partition(":") if ":" in path else path.rpartition(".")
    if not all(part.isidentifier() for part in (*module.split("."), *name.split("."))):
        raise SettingsError(f"{key} = {shortened(path)!r}: should be MODULE:NAME, such as my_package.nets:Net")
    return module, name


def _missing(path: str, key: str, module: str) -> SettingsError:
    return SettingsError(f"{key} = {path!r}: no module {module!r} in {Path.cwd()} or on the PYTHONPATH")


def _search_working_directory() -> None:
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)


def _wanted(path: str, kind: type, key: str) -> str:
    module = "torch.nn" if kind.__module__ == "torch.nn.modules.module" else kind.__module__
    return f"{key} = {path!r}: should be a class or function that makes a {module}.{kind.__qualname__}"


def _returned(function: Any) -> type | None:
    """The class that a function is annotated to return, ``None`` where that cannot be read or is none."""
    try:
        found = typing.get_type_hints(function).get("return")
    except Exception:  # names may be there for type checkers only
        return None
    return found if isinstance(found, type) and found is not Any else None


def _is_users(function: Any) -> bool:
    """Whether a function is written in Python, in a source that is neither installed nor fedtide's."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return False
    file = Path(code.co_filename)
    return file.is_file() and _is_own(file) and not file.is_relative_to(Path(__file__).parents[2])


def _root(file: Path) -> Path:
    return file if file.is_dir() else file.parent


def _is_own(file: Path) -> bool:
    return not (_INSTALLED & set(file.parts) or file.is_relative_to(_STANDARD))


def _reached(module: str, key: str) -> Iterator[tuple[str, Path]]:
    """Modules that a module imports, directly or not, with their files, in a fixed order; not what installed ones import."""
    seen: set[str] = set()
    todo = [module]
    while todo:
        name = todo.pop()
        if name in seen or name.partition(".")[0] == "fedtide":
            continue
        seen.add(name)
        if (file := module_file(name)) is None or file.suffix not in (".py", ""):
            continue
        yield name, file
        if name.rpartition(".")[0]:
            todo.append(name.rpartition(".")[0])  # a package is imported before what is in it
        if file.suffix and _is_own(file):
            try:
                todo.extend(sorted(imported_names(name, file), reverse=True))
            except (SyntaxError, ValueError, RecursionError, OSError) as error:
                raise SettingsError(f"{key}: {describe_fault(error, [file.parent], file)}") from None
