"""Plug-ins of installed packages, found by their entry points, and of the folders in ``FEDTIDE_PLUGINS``.

A package here is a folder with its metadata on ``sys.path``.
"""

import importlib.metadata
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedtide.core import plugins
from fedtide.core.discovery import source
from fedtide.core.errors import SettingsError
from fedtide.runs.open_run import modules
from fedtide.world.building.build import world_origin
from support import settings

ALGORITHM = '''from {package}.steps import STEP

from fedtide import Algorithm


class Brought(Algorithm):
    """Averages."""

    step = STEP
'''
Install = Callable[..., Path]


@pytest.fixture
def install(own: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """``install(package, name)``: a distribution whose package brings an algorithm, and helpers of its own."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    read: Any = importlib.metadata.entry_points
    monkeypatch.setattr(importlib.metadata, "entry_points", getattr(read, "__wrapped__", read))

    def make(package: str, name: str, value: str = "") -> Path:
        site = own / f"site_{package}"
        (site / package / "parts" / "algorithms").mkdir(parents=True)
        for folder in (site / package, site / package / "parts"):
            (folder / "__init__.py").write_text(
                "raise AssertionError('imported to be found')\n" * (folder.name == "parts")
            )
        (site / package / "steps.py").write_text("from .sizes import STEP\n")
        (site / package / "sizes.py").write_text("STEP = 1\n")
        file = site / package / "parts" / "algorithms" / f"{name}.py"
        file.write_text(ALGORITHM.format(package=package))
        info = site / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{source.GROUP}]\nany = {value or f'{package}.parts'}\n")
        sys.path.append(str(site))
        return file

    return make


def test_an_installed_package_brings_plugins(install: Install) -> None:
    file = install("bringer", "brought_in")
    assert plugins.summary("algorithms", "brought_in") == "Averages."
    assert plugins.broken("algorithms", "brought_in") is None
    cls: Any = plugins.load("algorithms", "brought_in")
    assert (cls.step, Path(sys.modules[cls.__module__].__file__ or "")) == (1, file)


def test_the_run_key_depends_on_what_a_package_brings_and_on_what_that_imports(install: Install) -> None:
    before = modules(settings(algorithm="fedavg"))
    install("keyed", "keyed_in")
    found = set(modules(settings(algorithm="keyed_in"))) - set(before)
    assert found == {"fedtide.methods.algorithms.keyed_in", "keyed.steps", "keyed.sizes"}
    assert modules(settings(algorithm="fedavg")) == before


@pytest.mark.parametrize("taken", ["fedavg", "twice_in"])
def test_a_name_that_two_files_have_is_one_line_where_it_is_used(install: Install, own: Path, taken: str) -> None:
    file = install(f"clash_{taken}", taken)
    if taken != "fedavg":
        (own / "algorithms").mkdir()
        (own / "algorithms" / f"{taken}.py").write_text("")
    assert taken in plugins.names("algorithms")
    with pytest.raises(SettingsError) as caught:
        plugins.load("algorithms", taken)
    line = str(caught.value)
    assert line.startswith(f"algorithms has two plug-ins named {taken}: ")
    assert f"{file}; rename or remove one" in line
    assert plugins.broken("algorithms", taken) == line
    plugins.load("algorithms", "fedprox")


@pytest.mark.parametrize("value", ["absent.no_parts", "absent.steps", "absent.parts:name"])
def test_an_entry_point_that_names_no_package_is_one_line(install: Install, value: str) -> None:
    install("absent", "absent_in", value)
    with pytest.raises(
        SettingsError, match=r"^entry point any = '.*' .* of the installed package absent: no such package;"
    ):
        plugins.names("algorithms")


SCENARIO = """from timely import helpers
from timely.parts import steps

from fedtide.world.scenarios.static import Static


class Timely(Static):
    \"\"\"The same devices.\"\"\"
"""


def test_a_timeline_depends_on_what_the_package_of_its_scenario_imports(install: Install, own: Path) -> None:
    """Whether the package is named alone, or with the module that it brings."""
    identities = set()
    for number, changed in enumerate(("", "timely/helpers.py", "timely/parts/steps.py")):
        site = (
            install("timely", "unused_in").parents[3].rename(own / str(number))
        )  # a path of its own: sources are cached
        sys.path[-1] = str(site)
        (site / "timely/__init__.py").write_text("")
        (site / "timely/parts/__init__.py").write_text("")
        (site / "timely/parts/scenarios").mkdir()
        (site / "timely/parts/scenarios/timely_in.py").write_text(SCENARIO)
        for name in ("timely/helpers.py", "timely/parts/steps.py"):
            (site / name).write_text(f"NUMBER = {int(name == changed)}\n")
        identities.add(str(world_origin(settings(scenario="timely_in"))))
        for name in [name for name in sys.modules if name.partition(".")[0] == "timely"]:
            del sys.modules[name]
        sys.path.pop()
    assert len(identities) == 3


MOVED = '''from fedtide import Algorithm
from fedtide.methods.algorithms._moved_helper import STEP


class Moved(Algorithm):
    """Averages."""

    step = STEP
'''


def written(root: Path, step: int) -> Path:
    (root / "algorithms").mkdir(parents=True)
    (root / "algorithms" / "moved.py").write_text(MOVED)
    (root / "algorithms" / "_moved_helper.py").write_text(f"STEP = {step}\n")
    return root


def test_a_plugin_of_this_name_in_another_folder_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``FEDTIDE_PLUGINS`` may change within a process: only the folders that it names now count."""
    steps, files = [], []
    for step in (1, 2):
        monkeypatch.setenv("FEDTIDE_PLUGINS", str(written(tmp_path / str(step), step)))
        found: Any = plugins.load("algorithms", "moved")
        steps.append(found.step)
        files.append(source.source_file("fedtide.methods.algorithms._moved_helper"))
    assert steps == [1, 2]
    assert files == [tmp_path / str(step) / "algorithms" / "_moved_helper.py" for step in (1, 2)]
    monkeypatch.delenv("FEDTIDE_PLUGINS")
    assert "moved" not in plugins.names("algorithms")
    with pytest.raises(SettingsError, match="unknown name 'moved' in algorithms"):
        plugins.load("algorithms", "moved")
