"""What the commands share: their options, and how they speak and leave."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

ParamsFile = Annotated[Path, typer.Option("--params", help="Settings file.")]
Override = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one setting.")]
Runs = Annotated[Path, typer.Option("--runs", help="Folder of run directories.")]
Worlds = Annotated[Path, typer.Option("--worlds", help="Folder of timelines written by `fedtide partition`.")]
Mlruns = Annotated[Path | None, typer.Option("--mlruns", help="MLflow's folder; default $FEDTIDE_MLRUNS or mlruns.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object (or list) on the last line.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]

PARAMS = Path("params.yaml")
LOG_WIDTH = 140
console = Console(stderr=True, highlight=False)


def say(line: str) -> None:
    """A remark, on standard error."""
    console.print(line, markup=False, soft_wrap=True)


def mlruns_folder(given: Path | None) -> Path:
    """MLflow's folder: given, or from the environment, or ``mlruns``; absolute, since MLflow stores it."""
    return (given or Path(os.environ.get("FEDTIDE_MLRUNS", "mlruns"))).resolve()


def leave(summary: dict[str, Any]) -> None:
    """Exit status of a run: 0 complete, 1 diverged, 128 + signal when interrupted."""
    if summary["state"] == "interrupted":
        say("interrupted; the state is saved, the same command goes on from there")
        raise typer.Exit(128 + int(summary.get("signal", signal.SIGINT)))
    if summary["state"] == "diverged":
        say(f"{summary.get('message', 'diverged')}; its history is kept")
        raise typer.Exit(1)
