"""``fedtide reproduce``."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

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
    Seconds,
    as_given,
    with_cluster,
)
from fedtide.cli.reporter import log, output, print_table, progress
from fedtide.core.discovery.shipped import DEFAULTS
from fedtide.core.errors import SettingsError
from fedtide.core.extras import require

if TYPE_CHECKING:
    from fedtide.settings.run import RunSettings
    from fedtide.studies.reproduce.recipe import Entry, Recipe
    from fedtide.studies.reproduce.results import Results

WIDTH = 160
SHOWN = 20


def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Experiment names; see --list.")
    ] = None,
    profile: Annotated[str | None, typer.Option(help="Profile of the experiment. Default: its first one.")] = None,
    order: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="YAML list of {name, profile, only, minutes}: what to run, in this order."),
    ] = None,
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
    seconds: Seconds = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Reproduce published tables, one after the other, and show reproduced next to published numbers.

    Finished runs are reused, interrupted ones continued.
    """
    require("reproduce", "fedtide reproduce", "matplotlib")
    from fedtide.studies.reproduce.recipe import Entry, read_order

    if status:
        _status(results, as_json)
        return
    if order is not None and (names or profile or only):
        raise SettingsError(f"--order {order} gives names, profiles and cells; leave out NAME, --profile and --only")
    if order is None and not names:
        if not listed:
            raise SettingsError("name an experiment; `fedtide reproduce --list` lists them")
        _print(_experiments(), as_json)
        return
    named = [Entry(name=name, profile=profile, only=tuple(only or ())) for name in names or ()]
    settings = list(overrides or ())
    typed = [*as_given(DEFAULTS, settings), *(["--seeds", seeds] if seeds is not None else ())]
    if seeds is not None:
        settings.append(f"compare.seeds=[{seeds}]")
    if workers is not None:
        settings.append(f"compare.workers={workers}")
    plan = _plan(named if order is None else read_order(order), with_cluster(settings, cluster))
    if listed:
        _print(_tables(plan) if len(plan) > 1 else _cells(plan[0].recipe, plan[0].entry.only), as_json)
    elif dry_run:
        _dry_run(plan, runs, as_json)
    else:
        _run(plan, typed, runs, results, seconds, allow_failures, as_json, quiet)


class _Planned(NamedTuple):
    """A table to reproduce, and its runs."""

    entry: Entry
    recipe: Recipe
    grid: list[RunSettings]


def _plan(entries: Sequence[Entry], settings: list[str]) -> list[_Planned]:
    """The tables of the entries under the overrides ``settings``; every file is read once."""
    from fedtide.studies.reproduce.recipe import Recipe
    from fedtide.studies.reproduce.reproduce import distinct_runs, find

    distinct = {(entry.name, entry.profile): None for entry in entries}
    recipes = {(name, profile): Recipe(find(name), profile, settings) for name, profile in distinct}
    for remark in dict.fromkeys(remark for recipe in recipes.values() for remark in recipe.remarks):
        log(remark)
    pairs = [(entry, recipes[entry.name, entry.profile]) for entry in entries]
    return [
        _Planned(entry, recipe, distinct_runs(recipe, recipe.select(entry.only), recipe.seeds))
        for entry, recipe in pairs
    ]


def _dry_run(plan: list[_Planned], runs: Path, as_json: bool) -> None:
    from fedtide.runs.dry_run import dry_run
    from fedtide.runs.workspace import Workspace

    first = plan[0].recipe
    grid = {id(run): run for each in plan for run in each.grid}  # tables share runs
    found = dry_run(list(grid.values()), Workspace(runs, loggers=first.loggers), first.compare.workers)
    print(json.dumps(found._asdict()) if as_json else found)


def _run(
    plan: list[_Planned],
    typed: list[str],
    runs: Path,
    results: Path,
    seconds: float | None,
    allow_failures: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Reproduce the tables one after the other, until a signal or the time limit; print them, and exit with their status."""
    from fedtide.runs.jobs.signals import time_limit
    from fedtide.studies.reproduce.reproduce import reproduce as run_table

    tables: dict[Recipe, Results] = {}
    summaries, refused, stopped, left = [], [], None, len(plan)
    with progress(quiet) as watch, time_limit(seconds) as late:
        for entry, recipe, _ in plan:
            command = shlex.join(["fedtide", "reproduce", entry.name, "--profile", recipe.profile, *typed])
            try:
                tables[recipe], found, stopped = run_table(recipe, entry.only, runs, results, command, watch)
                summaries += found
            except SettingsError as error:  # for instance of a package that only this table needs
                refused.append(f"{entry.name}: {error}" if len(plan) > 1 else str(error))
            left -= stopped is None
            if stopped is not None or late.is_set():
                break
    if late.is_set() and left:
        log(f"--seconds {seconds:g}: {left} of {len(plan)} tables left; re-run the same command to resume")
        stopped = None
    shown = [_show(table, results, as_json) for table in tables.values()]
    if as_json and shown:
        print(json.dumps(shown if len(plan) > 1 else shown[0]))
    if refused:
        raise SettingsError("; ".join(refused))
    exit_with_all(summaries, stopped, allow_failures or all(each.recipe.allow_failures for each in plan))


def _show(table: Results, results: Path, as_json: bool) -> dict[str, Any]:
    """Print a table unless it is printed as JSON; what JSON has of it."""
    from fedtide.studies.reproduce.results import json_rows, missing_lines

    name, profile = table.recipe.name, table.recipe.profile
    if not as_json:
        _print_results(table, results / name / profile)
    files = [f"{results / name / profile}{suffix}" for suffix in (".csv", ".md")]
    return {"name": name, "profile": profile, "files": files, "rows": json_rows(table), "missing": missing_lines(table)}


def _tables(plan: list[_Planned]) -> tuple[list[str], list[list[str]]]:
    lines = [
        [entry.name, recipe.profile, " ".join(entry.only), f"{entry.minutes or 0:g}", str(len(grid))]
        for entry, recipe, grid in plan
    ]
    return ["name", "profile", "only", "minutes", "runs"], lines


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


def _cells(recipe: Recipe, only: tuple[str, ...]) -> tuple[list[str], list[list[str]]]:
    lines = [[*cell.values, recipe.runs(cell, recipe.seeds[0])[0].label] for cell in recipe.select(only)]
    return [*recipe.columns, "run as"], lines
