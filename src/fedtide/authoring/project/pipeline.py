"""The pipeline of DVC in a folder of the user's."""

import logging
import re
from pathlib import Path

from fedtide.core.discovery.shipped import SHIPPED
from fedtide.core.errors import SettingsError
from fedtide.core.extras import require
from fedtide.core.storage.files import read_text, write_text

_IGNORED = "__pycache__/\n/data/\n/mlruns/\n/runs/\n"


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


def write_pipeline(files: dict[Path, str], folder: Path) -> None:
    """Write the files, and make the folder a project of DVC, in git if it is there."""
    from dvc.repo import Repo

    logging.getLogger("dvc.repo.init").setLevel(logging.WARNING)  # the command says what was written
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    if not (folder / ".gitignore").exists():
        write_text(folder / ".gitignore", _IGNORED)
    if not (folder / ".dvc").exists():
        in_git = [place for place in (folder.resolve(), *folder.resolve().parents) if (place / ".git").exists()]
        Repo.init(str(folder), no_scm=not in_git, subdir=bool(in_git) and in_git[0] != folder.resolve())


def _without_sources(found: re.Match[str]) -> str:
    kept = [item for item in found[1].removeprefix("deps: [").split(", ") if not item.startswith("src/")]
    return f"deps: [{', '.join(kept)}]"
