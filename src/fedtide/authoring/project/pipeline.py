"""The pipeline of DVC in a folder of the user's."""

import logging
import re
from pathlib import Path

from fedtide.core.discovery.shipped import SHIPPED
from fedtide.core.errors import SettingsError
from fedtide.core.extras import require
from fedtide.core.storage.files import read_text, write_text

_FOLDERS = "curves data dvc_plots inputs metrics mlruns outcomes report runs tuning worlds"  # what the stages write
_IGNORED = ("__pycache__/", *(f"/{name}/" for name in _FOLDERS.split()))


def pipeline_files(folder: Path) -> dict[Path, str]:
    """Content of the files of the pipeline by path; none exists in the folder.

    The installed package is no dependency of its stages, other than by its plug-ins, whose code the stage ``inputs`` hashes.

    Raises:
        SettingsError: a file exists, or packages are not installed that the pipeline needs.
    """
    require("dvc", "--dvc")
    stages = re.sub(r"(deps: \[.*?)\]", _without_sources, read_text(SHIPPED / "dvc.yaml"))
    scripts = sorted((SHIPPED / "pipeline").glob("*.py"))
    files = {folder / "dvc.yaml": stages} | {folder / "pipeline" / path.name: read_text(path) for path in scripts}
    for path in files:
        if path.exists():
            raise SettingsError(f"{path} already exists and is not overwritten")
    return files


def write_pipeline(files: dict[Path, str], folder: Path) -> bool:
    """Write the files, and make the folder a project of DVC, in git if it is there; whether it is."""
    from dvc.repo import Repo

    logging.getLogger("dvc.repo.init").setLevel(logging.WARNING)  # the command says what was written
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    _ignore(folder / ".gitignore")
    in_git = [place for place in (folder.resolve(), *folder.resolve().parents) if (place / ".git").exists()]
    if not (folder / ".dvc").exists():
        Repo.init(str(folder), no_scm=not in_git, subdir=bool(in_git) and in_git[0] != folder.resolve())
    return bool(in_git)


def _ignore(path: Path) -> None:
    """Add the outputs that a .gitignore lacks."""
    known = read_text(path) if path.exists() else ""
    missing = "".join(f"{line}\n" for line in _IGNORED if line not in known.splitlines())
    write_text(path, f"{known}\n{missing}" if known and not known.endswith("\n") else known + missing)


def _without_sources(found: re.Match[str]) -> str:
    kept = [item for item in found[1].removeprefix("deps: [").split(", ") if not item.startswith("src/")]
    return f"deps: [{', '.join(kept)}]"
