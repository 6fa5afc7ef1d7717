"""Which source files a piece of the project depends on, from the import statements in them."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
from collections.abc import Iterable
from pathlib import Path


@functools.cache
def source_file(module: str) -> Path | None:
    """The file of a module of this project (or of a plug-in folder), ``None`` if there is none."""
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        return None
    return Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None


@functools.cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


@functools.cache
def _syntax(file: Path) -> bytes:
    return ast.dump(_tree(file)).encode()


@functools.cache
def _imports(module: str) -> frozenset[str]:
    file = source_file(module)
    found: set[str] = set()
    for node in ast.walk(_tree(file)) if file else ():
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(name for name in found if name.startswith("fedtide.") and source_file(name))


def closure(modules: Iterable[str]) -> list[str]:
    """The modules and all modules of this project they import, directly or not, anywhere in their source; sorted."""
    todo, seen = list(modules), set()
    while todo:
        module = todo.pop()
        if module not in seen:
            seen.add(module)
            todo.extend(_imports(module))
    return sorted(seen)


def fingerprint(modules: Iterable[str]) -> str:
    """Hash of the syntax trees of some modules: comments and layout do not count."""
    digest = hashlib.sha256()
    for module in modules:
        file = source_file(module)
        if file is not None:
            digest.update(module.encode())
            digest.update(_syntax(file))
    return digest.hexdigest()
