"""The import graph of the package: no circle, no arrow upwards, packages of plug-ins that hold plug-ins."""

from __future__ import annotations

import ast
import functools
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from fedtide.core import plugins

PROJECT = Path(__file__).parents[2]
SOURCE = PROJECT / "src"

LAYERS: tuple[tuple[str, ...], ...] = (
    ("core",),
    ("settings",),
    ("world",),
    ("adapters",),
    ("data", "detectors", "models", "participation", "partitions", "weighting"),
    ("drift", "objectives", "scenarios"),
    ("worlds",),
    ("accounting", "costs", "privacy", "programs"),
    ("engine",),
    ("records",),
    ("mirror",),
    ("algorithms", "initialisation"),
    ("aggregation", "attack", "selection", "uplink"),
    ("exchange",),
    ("federation",),
    ("report",),
    ("runs",),
    ("authoring", "projects", "reproduce", "tuning"),
    ("tide",),
    ("",),
    ("cli",),
    ("__main__",),
)
"""From the bottom up, packages by name; the empty name is the public interface. A module imports from its own package and from
lower layers only."""


def names() -> dict[str, Path]:
    """Source file of every module, by its name without ``fedtide.``; the package itself is the empty name."""
    shipped = SOURCE / "fedtide" / "shipped"  # files for users, no modules
    files = sorted(file for file in (SOURCE / "fedtide").rglob("*.py") if shipped not in file.parents)
    parts = [file.relative_to(SOURCE / "fedtide").with_suffix("").parts for file in files]
    return {
        ".".join(part for part in path if part != "__init__"): file for path, file in zip(parts, files, strict=True)
    }


MODULES = names()


def imports(file: Path) -> set[str]:
    """Modules of this project that a file imports anywhere: at the top, inside functions, for the type checker."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            base = node.module or ""
            named = {f"{base}.{alias.name}" for alias in node.names}
            modules = {name for name in named if name.removeprefix("fedtide.") in MODULES}
            found |= modules | ({base} if modules != named else set())
    return {name.partition(".")[2] for name in found if name.split(".")[0] == "fedtide"}


@functools.cache
def graph() -> dict[str, set[str]]:
    """What every module imports."""
    return {module: imports(file) - {module} for module, file in MODULES.items()}


def layer(module: str) -> tuple[int, str]:
    """Number of a module's layer, and the name of its package."""
    places = {name: number for number, group in enumerate(LAYERS) for name in group}
    package = module.partition(".")[0]
    assert package in places, f"{module} belongs to no layer"
    return places[package], package


def test_there_is_no_circle() -> None:
    """Imports inside functions and those for the type checker count."""
    try:
        TopologicalSorter(graph()).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(reversed(error.args[1])))


def test_there_is_no_arrow_upwards() -> None:
    wrong = []
    for module, found in graph().items():
        height, own = layer(module)
        for imported in found:
            other, name = layer(imported)
            if other > height or (other == height and name != own):
                wrong.append(f"{module or 'fedtide'} imports {imported or 'fedtide'}")
    assert not wrong


def test_a_private_module_is_imported_by_its_package_alone() -> None:
    private = [
        (module, imported)
        for module, found in graph().items()
        for imported in sorted(found)
        if imported.rpartition(".")[2].startswith("_") and not imported.endswith("__")
    ]
    assert private
    assert not [pair for pair in private if pair[0].rpartition(".")[0] != pair[1].rpartition(".")[0]]


@pytest.mark.parametrize("kind", plugins.KINDS)
def test_a_package_of_plugins_holds_plugins(kind: str) -> None:
    """Everything else is the base or private; there is no list of exceptions."""
    folder = SOURCE / "fedtide" / kind
    modules = {file.stem for file in folder.glob("*.py") if not file.stem.startswith("_")}
    assert modules - {"base"} == set(plugins.names(kind))
    assert {path.name for path in folder.iterdir()} <= {
        *(f"{file.stem}.py" for file in folder.glob("*.py")),
        "__pycache__",
    }
    for name in modules - {"base"}:
        assert plugins.load(kind, name).kind == kind


def test_no_room_is_crowded() -> None:
    """Plug-ins of one kind stand side by side, however many there are."""
    folders = {file.parent for file in (SOURCE / "fedtide").rglob("*.py")}
    rooms = {folder.name: len(list(folder.glob("*.py"))) for folder in folders if folder.name not in plugins.KINDS}
    assert not {name: count for name, count in rooms.items() if count > 21}


def test_the_stages_do_not_import_the_command_line() -> None:
    files = sorted((PROJECT / "pipeline").glob("*.py"))
    assert files
    assert not [file.name for file in files if "cli.main" in imports(file)]
