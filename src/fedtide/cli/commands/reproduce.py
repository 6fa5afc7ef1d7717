"""``fedtide reproduce``."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedtide.cli.exits import exit_with_all
from fedtide.cli.options import (
    AllowFailures,
    ClusterOption,
    DryRun,
    Json,
    Override,
    Quiet,
    Runs,
    as_given,
    with_cluster,
)
from fedtide.cli.reporter import log, output, print_table, progress
from fedtide.core.discovery.shipped import DEFAULTS
from fedtide.core.errors import SettingsError
from fedtide.core.extras import require

if TYPE_CHECKING:
    from fedtide.studies.reproduce.recipe import Recipe
    from fedtide.studies.reproduce.results import Results

WIDTH = 160
SHOWN = 20


def reproduce(
    name: Annotated[str | None, typer.Argument(help="Experiment name; see --list.")] = None,
    profile: Annotated[str | None, typer.Option(help="Profile of the experiment. Default: its first one.")] = None,
    runs: Runs = Path("runs"),
    results: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("results"),
    overrides: Override = None,
    seeds: Annotated[str | None, typer.Option(help="Replace the experiment's seeds, e.g. 100,200.")] = None,
    workers: Annotated[int | None, typer.Option(min=0, help="Number of concurrent runs; 0 for one per core.")] = None,
    cluster: ClusterOption = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN=VALUES", help="Run only these cells, e.g. algorithm=moon.")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the experiments, or the cells of one.")] = False,
    status: Annotated[
        bool,
        typer.Option(
            "--status",
            help="Show how much of each published table has been reproduced, and write it to README.md in the "
            "results folder.",
        ),
    ] = False,
    allow_failures: AllowFailures = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Reproduce a published table and show obtained next to published numbers.

    Finished runs are reused, interrupted ones continued.
    """
    require("reproduce", "fedtide reproduce")
    from fedtide.studies.reproduce.recipe import Recipe
    from fedtide.studies.reproduce.reproduce import distinct_runs, find
    from fedtide.studies.reproduce.reproduce import reproduce as run_table
    from fedtide.studies.reproduce.results import json_rows, missing_lines

    if status:
        _status(results, as_json)
        return
    if name is None:
        if not listed:
            raise SettingsError("name an experiment; `fedtide reproduce --list` lists them")
        _print(_experiments(), as_json)
        return
    path = find(name)
    settings = list(overrides or ())
    command = ["fedtide", "reproduce", name, *as_given(DEFAULTS, settings)]
    if seeds is not None:
        settings.append(f"compare.seeds=[{seeds}]")
        command += ["--seeds", seeds]
    if workers is not None:
        settings.append(f"compare.workers={workers}")
    recipe = Recipe(path, profile, with_cluster(settings, cluster))
    for remark in recipe.remarks:
        log(remark)
    if listed:
        _print(_cells(recipe, only or ()), as_json)
        return
    if dry_run:
        from fedtide.runs.dry_run import dry_run as planned
        from fedtide.runs.workspace import Workspace

        grid = distinct_runs(recipe, recipe.select(only or ()), recipe.seeds)
        print(planned(grid, Workspace(runs, loggers=recipe.loggers), recipe.compare.workers))
        return
    command[3:3] = ["--profile", recipe.profile]
    with progress(quiet) as watch:
        table, summaries, stopped = run_table(recipe, only or (), runs, results, shlex.join(command), watch)
    files = results / recipe.name / recipe.profile
    if as_json:
        facts = {"name": recipe.name, "profile": recipe.profile, "files": [f"{files}.csv", f"{files}.md"]}
        print(json.dumps({**facts, "rows": json_rows(table), "missing": missing_lines(table)}))
    else:
        _print_results(table, files)
    exit_with_all(summaries, stopped, allow_failures or recipe.allow_failures)


def _print(table: tuple[list[str], list[list[str]]], as_json: bool) -> None:
    """Headings and lines, as a table or as JSON."""
    heads, lines = table
    if as_json:
        print(json.dumps([dict(zip(heads, line, strict=True)) for line in lines]))
    else:
        print_table(heads, lines, WIDTH)


def _print_results(results: Results, files: Path) -> None:
    from fedtide.studies.reproduce.results import missing_lines, printable

    console = output(WIDTH)
    for part in printable(results):
        console.print(part)
    lines = missing_lines(results)
    for line in lines[:SHOWN]:
        console.print(f"missing: {line}", markup=False)
    if len(lines) > SHOWN:
        console.print(f"missing: {len(lines) - SHOWN} more, listed in the .md file")
    console.print(f"results: {files}.csv and .md", markup=False, soft_wrap=True)


def _experiments() -> tuple[list[str], list[list[str]]]:
    from fedtide.studies.reproduce.recipe import Recipe
    from fedtide.studies.reproduce.reproduce import count_runs, experiments

    lines = []
    for name, path in experiments().items():
        recipe = Recipe(path)
        profiles = ", ".join(recipe.table.profiles)
        lines.append([name, recipe.table.title, profiles, str(len(recipe.cells)), str(count_runs(recipe))])
    return ["name", "title", "profiles", "cells", "runs"], lines


def _status(results: Path, as_json: bool) -> None:
    from fedtide.core.storage.files import folder, write_text
    from fedtide.studies.reproduce.status import HEADS, lines, page, status

    found = status(results)
    folder(results)
    write_text(results / "README.md", page(found))
    _print((HEADS, lines(found)), as_json)


def _cells(recipe: Recipe, only: list[str] | tuple[()]) -> tuple[list[str], list[list[str]]]:
    lines = [[*cell.values, recipe.runs(cell, recipe.seeds[0])[0].label] for cell in recipe.select(only)]
    return [*recipe.columns, "run as"], lines
