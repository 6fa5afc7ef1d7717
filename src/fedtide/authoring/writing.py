"""Writes the file of a new plug-in, and its test; they start from the examples of the guide, ``docs/extend*.md``."""

import ast
import keyword
import re
from pathlib import Path

import yaml

from fedtide.core import plugins
from fedtide.core.discovery.shipped import SHIPPED
from fedtide.core.errors import SettingsError, shortened
from fedtide.core.storage.files import read_text, write_text

_FOLDER = SHIPPED / "templates"

TEMPLATES = {file.parent.name: file for file in sorted((_FOLDER / "plugins").glob("*/*.py"))}
"""An example of a plug-in by its kind; the last class in the file is the plug-in."""


def write_plugin(kind: str, name: str, folder: Path) -> tuple[Path, Path]:
    """Write ``<kind>/<name>.py`` and ``tests/test_<kind>_<name>.py`` below a folder; returns both.

    Raises:
        SettingsError: the kind has no template, the name cannot be a plug-in's or is taken, or a file exists.
    """
    if kind not in TEMPLATES:
        raise SettingsError(f"no template for {kind}; templates exist for {', '.join(TEMPLATES)}")
    _refuse_name(kind, name)
    test = read_text(_FOLDER / "plugin_test.py").replace("KIND", kind).replace("NAME", name)
    texts = _renamed(TEMPLATES[kind], name), test
    files = folder / kind / f"{name}.py", folder / "tests" / f"test_{kind}_{name}.py"
    for file in files:
        if file.exists():
            raise SettingsError(f"{file} exists; choose another name or remove it")
        if (other := next((path for path in file.parents if path.exists()), folder)) and not other.is_dir():
            raise SettingsError(f"folder = {str(folder)!r}: {other} is not a folder")
    for file, text in zip(files, texts, strict=True):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, text)
    return files


def _renamed(template: Path, name: str) -> str:
    """The source of a template under another name; a SettingsError if its class would have the name of something else."""
    code = read_text(template)
    tree = ast.parse(code)
    old = [node.name for node in tree.body if isinstance(node, ast.ClassDef)][-1]
    new = "".join(part.capitalize() for part in name.split("_"))
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Name | ast.alias | ast.ClassDef)]
    taken = {node.id if isinstance(node, ast.Name) else node.name for node in found} - {old}
    if new in taken or keyword.iskeyword(new):
        raise SettingsError(f"name = {name!r}: its class would be {new}, which already exists; choose another name")
    code = re.sub(rf"\bclass {old}\b", f"class {new}", code)
    return re.sub(rf'(?<=["\.]){template.stem}(?=")', name, code)


def _refuse_name(kind: str, name: str) -> None:
    said = f"name = {shortened(name)!r}"
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,49}", name):
        raise SettingsError(
            f"{said}: should be a lower-case letter and at most 49 more, digits or _; it names a file and a setting"
        )
    if keyword.iskeyword(name) or name == "base" or not isinstance(yaml.safe_load(name), str):
        raise SettingsError(f"{said}: is reserved in Python, in YAML or in plug-in folders; choose another name")
    if name in plugins.names(kind):
        raise SettingsError(f"{said}: a plug-in of this name exists in {kind}; choose another name")
