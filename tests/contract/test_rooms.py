"""The areas of the package: no circle, no import from a higher area, packages of plug-ins that hold plug-ins."""

import ast
import functools
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from fedtide.core import plugins

PROJECT = Path(__file__).parents[2]
SOURCE = PROJECT / "src"

AREAS = (
    ("core",),
    ("settings",),
    ("world",),
    ("training",),
    ("methods",),
    ("records",),
    ("federation",),
    ("runs",),
    ("report",),
    ("authoring", "studies"),
    ("", "interface"),
    ("cli",),
    ("__main__",),
)
"""From the bottom up: the areas of the package, its public interface and the commands. A module imports from its own area and
from lower ones only."""

MOST = 15
"""Most files and folders at the top of an area, or in a folder that does not hold the plug-ins of a kind."""


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


def height(module: str) -> tuple[int, str]:
    """How far up a module's area is, and its name."""
    areas = {name: number for number, group in enumerate(AREAS) for name in group}
    area = module.partition(".")[0]
    assert area in areas, f"{module} belongs to no area"
    return areas[area], area


@pytest.mark.slow
def test_there_is_no_circle() -> None:
    """Imports inside functions and those for the type checker count."""
    try:
        TopologicalSorter(graph()).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(reversed(error.args[1])))


@pytest.mark.slow
def test_no_module_imports_from_a_higher_area() -> None:
    wrong = []
    for module, found in graph().items():
        level, own = height(module)
        for imported in found:
            other, name = height(imported)
            if other > level or (other == level and name != own and "" not in (name, own)):
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
    folder = plugins.HOMES[kind]
    modules = {file.stem for file in folder.glob("*.py") if not file.stem.startswith("_")}
    assert modules - {"base"} == set(plugins.names(kind))
    assert {path.name for path in folder.iterdir()} <= {
        *(f"{file.stem}.py" for file in folder.glob("*.py")),
        "__pycache__",
    }
    for name in modules - {"base"}:
        assert plugins.load(kind, name).kind == kind


def test_no_folder_is_crowded() -> None:
    """Plug-ins of one kind stand side by side, however many there are, and so do sections of the report."""
    dropped_in = {*plugins.HOMES.values(), SOURCE / "fedtide" / "report" / "sections"}
    folders = {file.parent for file in MODULES.values()} - dropped_in
    counts = {folder: len([*folder.glob("[!_]*.py"), *folder.glob("*/__init__.py")]) for folder in folders}
    assert not {folder.name: count for folder, count in counts.items() if count > MOST}


def test_no_file_is_long() -> None:
    assert not [name for name, file in MODULES.items() if len(file.read_text(encoding="utf-8").splitlines()) > 400]


def test_the_stages_do_not_import_the_command_line() -> None:
    files = sorted((PROJECT / "pipeline").glob("*.py"))
    assert files
    assert not [file.name for file in files if "cli.main" in imports(file)]
