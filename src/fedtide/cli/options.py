"""Options shared by several commands."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

ParamsFile = Annotated[Path, typer.Option("--params", help="Settings file.")]
Override = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one setting.")]
Runs = Annotated[Path, typer.Option("--runs", help="Folder of run directories.")]
Worlds = Annotated[Path, typer.Option("--worlds", help="Folder of the timelines that `fedtide partition` writes.")]
Mlruns = Annotated[Path | None, typer.Option("--mlruns", help="MLflow's folder; default $FEDTIDE_MLRUNS or mlruns.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object (or list) on the last line.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
AllowFailures = Annotated[
    bool, typer.Option("--allow-failures", help="Exit with status 0 although runs diverged or failed; they are listed.")
]

PARAMS = Path("params.yaml")


def mlruns_folder(given: Path | None) -> Path:
    """MLflow's folder: the argument, the environment's, or ``mlruns``; absolute, since MLflow stores it."""
    return (given or Path(os.environ.get("FEDTIDE_MLRUNS", "mlruns"))).resolve()
