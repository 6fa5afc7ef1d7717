"""Sources: of which modules they are, what they import, and a hash of what they do."""

import ast
import functools
import hashlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from fedtide.core.errors import SettingsError, shortened

GROUP = "fedtide.plugins"
"""Entry points with the packages that bring plug-ins; their names are for people only."""


def installed_packages() -> dict[str, Path]:
    """Folders of the packages that bring plug-ins, by package, sorted; nothing is imported.

    Raises:
        SettingsError: an entry point names no package.
    """
    return _packages(tuple(sys.path))


@functools.lru_cache(maxsize=8)
def _packages(path: tuple[str, ...]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for point in sorted(importlib.metadata.entry_points(group=GROUP), key=lambda point: (point.value, point.name)):
        spec = spec_of(point.value)
        if spec is None or not spec.submodule_search_locations:
            brought = f" of the installed package {point.dist.name}" if point.dist else ""
            raise SettingsError(
                f"entry point {point.name} = {shortened(point.value)!r} in {GROUP}{brought}: no such package; "
                "reinstall or remove the package that declares it"
            )
        found[point.value] = Path(next(iter(spec.submodule_search_locations))).resolve()
    return found


def spec_of(module: str) -> ModuleSpec | None:
    """How a module would be imported, ``None`` if there is none; nothing is imported for it."""
    top, *below = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    for part in below:
        places = spec.submodule_search_locations if spec else None
        spec = PathFinder.find_spec(f"{spec.name}.{part}", list(places)) if spec and places else None
    return spec


@functools.cache
def source_file(module: str) -> Path | None:
    """The file of a module of this project, of a plug-in folder or of a package that brings plug-ins; else ``None``."""
    try:
        spec = importlib.util.find_spec(module) if module.startswith("fedtide.") else spec_of(module)
    except ModuleNotFoundError:
        return None
    return Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None


@functools.cache
def tree(file: Path) -> ast.Module:
    """The syntax tree of a source file."""
    return ast.parse(file.read_text(encoding="utf-8"), filename=str(file))


def _is_text(line: ast.stmt) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) and isinstance(line.value.value, str)


def _fields(node: ast.AST) -> Iterator[tuple[str, object]]:
    """Fields of a node without what is written for people: docstrings, descriptions, texts of errors."""
    kept: dict[str, object] = {}
    match node:
        case ast.Raise():
            yield "exc", node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            return
        case ast.Call():
            kept = {"keywords": [keyword for keyword in node.keywords if keyword.arg != "description"]}
        case ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            kept = {"body": [line for line in node.body if not _is_text(line)]}
    for name in node._fields:
        yield name, kept.get(name, getattr(node, name, None))


def _dump(value: object) -> str:
    """Like :func:`ast.dump`, but without empty fields, in which Python's versions differ."""
    if isinstance(value, ast.AST):
        fields = [
            f"{name}={text}" for name, item in _fields(value) if item is not None and (text := _dump(item)) != "[]"
        ]
        return f"{type(value).__name__}({','.join(fields)})"
    if isinstance(value, list):
        return f"[{','.join([_dump(item) for item in value])}]"
    return repr(value)


@functools.cache
def _meaning(file: Path) -> bytes:
    """What the interpreter makes of a file, without layout, comments and texts for people."""
    return _dump(tree(file)).encode()


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for inner in getattr(node, name, ()):
            yield inner
            yield from _statements(inner)


@functools.cache
def imported_names(module: str, file: Path) -> frozenset[str]:
    """Names that may be modules in the import statements of a source file."""
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    found: set[str] = set()
    for node in _statements(tree(file)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                outer = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*outer, *filter(None, [node.module])])
            if base:
                found |= {base, *(f"{base}.{alias.name}" for alias in node.names if alias.name != "*")}
    return frozenset(found)


@functools.cache
def _imports(module: str) -> frozenset[str]:
    file = source_file(module)
    tops = {"fedtide", *(package.partition(".")[0] for package in installed_packages())}
    found = imported_names(module, file) if file else ()
    return frozenset(
        name for name in found if name.partition(".")[0] in tops and name != "fedtide" and source_file(name)
    )


def forget_places() -> None:
    """Forget where modules are: folders of plug-ins have changed."""
    source_file.cache_clear()
    _imports.cache_clear()


@functools.cache
def fingerprint_of(file: Path) -> str:
    """Twelve hex digits of what one source file does, without layout and texts for people."""
    return hashlib.sha256(_meaning(file)).hexdigest()[:12]


def closure(modules: Iterable[str], within: Callable[[str], bool] = lambda _: True) -> list[str]:
    """The modules and all they import, directly or not, anywhere in their sources, of fedtide and of plug-in packages; sorted.

    Modules that are not ``within`` are neither listed nor looked into.
    """
    todo, seen = list(modules), set()
    while todo:
        module = todo.pop()
        if module not in seen and within(module):
            seen.add(module)
            todo.extend(_imports(module))
    return sorted(seen)


def fingerprint(modules: Iterable[str]) -> str:
    """Hash of what some modules do, without layout and texts for people."""
    files = ((module, source_file(module)) for module in modules)
    return fingerprint_files((module, file) for module, file in files if file is not None)


def fingerprint_files(files: Iterable[tuple[str, Path]]) -> str:
    """The same for modules with their files."""
    return _hashed(tuple((module, _meaning(file)) for module, file in files))


@functools.lru_cache(maxsize=64)  # runs of a search or a table have the same code: megabytes
def _hashed(meanings: tuple[tuple[str, bytes], ...]) -> str:
    digest = hashlib.sha256()
    for module, meaning in meanings:
        digest.update(module.encode())
        digest.update(meaning)
    return digest.hexdigest()
