"""Packages that bring plug-ins: installed ones with entry points of the group ``fedtide.plugins``.

The value of an entry point is a package whose folder is laid out as the user's: ``algorithms/foo.py`` below it is the algorithm
``foo``. Nothing is imported to find it, and its name is for people only.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from fedtide.core.errors import SettingsError, shortened

GROUP = "fedtide.plugins"


def installed_packages() -> dict[str, Path]:
    """Folders of the packages that bring plug-ins, by package, in alphabetical order.

    Raises:
        SettingsError: an entry point names no package.
    """
    return _packages(tuple(sys.path))


@functools.lru_cache(maxsize=8)
def _packages(path: tuple[str, ...]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for point in sorted(importlib.metadata.entry_points(group=GROUP), key=lambda point: (point.value, point.name)):
        if point.value in found:
            continue
        if (folder := _folder(point.value)) is None:
            brought = f" of the installed package {point.dist.name}" if point.dist else ""
            raise SettingsError(
                f"entry point {point.name} = {shortened(point.value)!r} in {GROUP}{brought}: no such package; reinstall or "
                "remove what brings it"
            )
        found[point.value] = folder
    return found


def spec_of(module: str) -> ModuleSpec | None:
    """How a module would be imported, ``None`` if there is none; nothing is imported for it."""
    top, *below = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    for part in below:
        if spec is None or spec.submodule_search_locations is None:
            return None
        spec = PathFinder.find_spec(f"{spec.name}.{part}", list(spec.submodule_search_locations))
    return spec


def _folder(package: str) -> Path | None:
    spec = spec_of(package)
    return (
        Path(next(iter(spec.submodule_search_locations))).resolve()
        if spec and spec.submodule_search_locations
        else None
    )
