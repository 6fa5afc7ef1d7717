"""Writes the file of a new plug-in, and its test."""

from __future__ import annotations

import keyword
import re
from pathlib import Path

import yaml

from fedtide.authoring.templates import TEMPLATES
from fedtide.core import plugins
from fedtide.core.errors import SettingsError, shortened
from fedtide.core.files import write_text

_TEST = '''"""The contract of every plug-in; add what this one promises beyond that, such as values worked out by hand."""

import os
from pathlib import Path

import pytest

os.environ.setdefault("FEDTIDE_PLUGINS", str(Path(__file__).parents[1]))

from fedtide.authoring.contract import PROMISES
from fedtide.authoring.trial import Trial


@pytest.fixture(scope="module")
def trial():
    return Trial("{kind}", "{name}")


@pytest.mark.parametrize("promise", PROMISES)
def test_contract(trial, promise):
    PROMISES[promise](trial)
'''


def write_plugin(kind: str, name: str, folder: Path) -> tuple[Path, Path]:
    """Write ``<kind>/<name>.py`` and ``tests/test_<kind>_<name>.py`` below a folder; returns both.

    Raises:
        SettingsError: the kind has no template, the name cannot be a plug-in's or is taken, or a file exists.
    """
    if kind not in TEMPLATES:
        raise SettingsError(f"there is no template for {kind}; there is one for {', '.join(TEMPLATES)}")
    _refuse_name(kind, name)
    code = TEMPLATES[kind].renamed(name)
    files = folder / kind / f"{name}.py", folder / "tests" / f"test_{kind}_{name}.py"
    for file in files:
        if file.exists():
            raise SettingsError(f"{file} exists; choose another name or remove it")
        if (other := next((path for path in file.parents if path.exists()), folder)) and not other.is_dir():
            raise SettingsError(f"folder = {str(folder)!r}: {other} is no folder")
    for file, text in zip(files, (code, _TEST.format(kind=kind, name=name)), strict=True):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, text)
    return files


def _refuse_name(kind: str, name: str) -> None:
    said = f"name = {shortened(name)!r}"
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,49}", name):
        raise SettingsError(
            f"{said}: should be a lower-case letter and at most 49 more, digits or _; it names a file and a setting"
        )
    if keyword.iskeyword(name) or name == "base" or not isinstance(yaml.safe_load(name), str):
        raise SettingsError(
            f"{said}: means something else in Python, in YAML or in a folder of plug-ins; choose another"
        )
    if name in plugins.names(kind):
        raise SettingsError(f"{said}: there is such a plug-in in {kind}; choose another")
