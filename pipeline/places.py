"""Folders that outlive a stage and are no outputs of DVC: those of the project, also in an experiment's temporary copy."""

from pathlib import Path

from fedtide.cli.options import mlruns_folder

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


def mlruns() -> Path:
    """MLflow's folder."""
    own, here = mlruns_folder(None), Path.cwd()
    return project(here) / own.relative_to(here) if own.is_relative_to(here) else own
