"""``fedtide reproduce``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from fedtide.cli.exits import exit_with
from fedtide.cli.options import Override, Quiet, Runs
from fedtide.cli.reporter import log, output, silent
from fedtide.core.errors import SettingsError

if TYPE_CHECKING:
    from fedtide.reproduce.recipe import Recipe

WIDTH = 160
SHOWN = 20


def reproduce(
    name: Annotated[str | None, typer.Argument(help="An experiment: experiments/<family>/NAME.yaml.")] = None,
    profile: Annotated[str | None, typer.Option(help="A profile of the experiment; default: its first.")] = None,
    runs: Runs = Path("runs"),
    results: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("results"),
    overrides: Override = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds that replace the experiment's, e.g. 100,200.")] = None,
    workers: Annotated[int | None, typer.Option(min=0, help="Runs executed at once; 0 for one per core.")] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="COLUMN=VALUES", help="Run only these cells, e.g. algorithm=moon."),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List experiments, or the cells of one.")] = False,
    quiet: Quiet = False,
) -> None:
    """Reproduce a published table and print obtained next to published numbers.

    Finished runs are reused, interrupted ones continued.
    """
    from fedtide.reproduce.recipe import Recipe
    from fedtide.reproduce.reproduce import find
    from fedtide.reproduce.reproduce import reproduce as run_table
    from fedtide.reproduce.results import missing_lines, printable

    console = output(WIDTH)
    if name is None:
        if not listed:
            raise SettingsError("which experiment? `fedtide reproduce --list` lists them")
        console.print(_experiments())
        return
    path = find(name)
    settings = list(overrides or ())
    command = ["fedtide", "reproduce", name, *(part for item in settings for part in ("--set", item))]
    if seeds is not None:
        settings.append(f"compare.seeds=[{seeds}]")
        command += ["--seeds", seeds]
    if workers is not None:
        settings.append(f"compare.workers={workers}")
    recipe = Recipe(path, profile, settings)
    if listed:
        console.print(_cells(recipe, only or ()))
        return
    command[3:3] = ["--profile", recipe.profile]
    table, stopped = run_table(recipe, only or (), runs, results, shlex.join(command), silent if quiet else log)
    for part in printable(table):
        console.print(part)
    lines = missing_lines(table)
    for line in lines[:SHOWN]:
        console.print(f"missing: {line}", markup=False)
    if len(lines) > SHOWN:
        console.print(f"missing: {len(lines) - SHOWN} more, listed in the .md file")
    console.print(f"results: {results / recipe.name / recipe.profile}.csv and .md", markup=False, soft_wrap=True)
    if stopped is not None:
        exit_with({"state": "interrupted", "signal": stopped})


def _experiments() -> Table:
    from fedtide.reproduce.recipe import Recipe
    from fedtide.reproduce.reproduce import count_runs, experiments

    table = Table("name", "title", "profiles", "cells", "runs", box=None, pad_edge=False)
    for name, path in experiments().items():
        recipe = Recipe(path)
        profiles = ", ".join(recipe.table.profiles)
        table.add_row(name, recipe.table.title, profiles, str(len(recipe.cells)), str(count_runs(recipe)))
    return table


def _cells(recipe: Recipe, only: list[str] | tuple[()]) -> Table:
    table = Table(*recipe.columns, "run as", box=None, pad_edge=False)
    for cell in recipe.select(only):
        table.add_row(*cell.values, recipe.runs(cell, recipe.seeds[0])[0].label)
    return table
