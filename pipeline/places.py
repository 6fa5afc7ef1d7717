"""Folders that outlive a stage and are no outputs of DVC: those of the project, also in an experiment's temporary copy."""

import subprocess
from collections.abc import Callable
from pathlib import Path

from fedtide.cli.options import mlruns_named
from fedtide.core.errors import SettingsError

_COPIES = (".dvc", "tmp", "exps")  # where DVC copies the project for `dvc exp run --temp` and `--queue`


def project(folder: Path) -> Path:
    """The project of a working directory, which may be such a copy: it is deleted at the end, the runs are kept."""
    parts = folder.parts
    for place in range(1, len(parts) - len(_COPIES) + 1):
        if parts[place : place + len(_COPIES)] == _COPIES:
            return Path(*parts[:place])
    return folder


def runs() -> Path:
    """The folder of run directories; relative in the project itself."""
    here = Path.cwd()
    return Path("runs") if (root := project(here)) == here else root / "runs"


def mlruns() -> str:
    """MLflow's place: a folder, or a URI."""
    named, here = mlruns_named(None), Path.cwd()
    prefix = "sqlite:///" if named.startswith("sqlite:///") else ""
    if (root := project(here)) == here or (":" in named and not prefix):
        return named
    return f"{prefix}{root / named.removeprefix(prefix)}"


def explained(main: Callable[[], None]) -> None:
    """Call ``main``; an error in an experiment's copy says that files which git does not track are not there."""
    try:
        main()
    except SettingsError as error:
        if (root := project(Path.cwd())) == Path.cwd():
            raise
        listing = ["git", "ls-files", "--others", "--exclude-standard", "--directory"]
        found = subprocess.run(listing, cwd=root, capture_output=True, text=True, check=False).stdout.splitlines()
        names = f" (not {', '.join(found)})" if found else ""
        raise SettingsError(
            f"{error}; DVC's copy of the project has what git or DVC tracks{names}: track the tables and plug-ins that the "
            "experiment needs, or name each in `dvc exp run --copy-paths PATH`"
        ) from None
