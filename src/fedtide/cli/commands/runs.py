"""``fedtide runs``: list, compare, remove and move recorded runs."""

import json
import shutil
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.filesize import decimal

from fedtide.cli.options import PARAMS, Json, Override, Runs, read_params
from fedtide.cli.reporter import log, print_table
from fedtide.core.errors import SettingsError, nearest, shortened
from fedtide.core.storage.files import creatable

app = typer.Typer(name="runs", no_args_is_help=True, help="List, compare, remove and move recorded runs.")

Run = Annotated[str, typer.Argument(help="Run directory, run key, or the beginning of its name.")]
State = Annotated[str | None, typer.Option(help="Only runs in this state, such as complete, failed or unfinished.")]


@app.command("list")
def list_(
    runs: Runs = Path("runs"),
    label: Annotated[str | None, typer.Option(help="Only runs of this label.")] = None,
    state: State = None,
    seed: Annotated[int | None, typer.Option(help="Only runs of this seed.")] = None,
    as_json: Json = False,
) -> None:
    """List the runs of a folder, the newest first: state, rounds, headline metric, size and age."""
    rows = _listed(runs, label=label, state=state, seed=seed)
    if as_json:
        print(json.dumps(rows))
    elif rows:
        for row in rows:
            row |= {"bytes": decimal(row["bytes"]), "age": timedelta(seconds=int(row["age"]))}
            row["value"] = None if row["value"] is None else f"{row['value']:.4f}"
        print_table(rows[0], [["" if cell is None else str(cell) for cell in row.values()] for row in rows])


def _listed(runs: Path, **wanted: Any) -> list[dict[str, Any]]:
    from fedtide.runs.catalog import STATES, listed
    from fedtide.runs.check import run_directories

    if (state := wanted["state"]) not in (None, *STATES):
        raise SettingsError(nearest(f"--state = {shortened(state)}: no such state", state, STATES))
    rows = sorted(map(listed, run_directories(runs)), key=lambda row: row["age"])
    return [row for row in rows if all(value in (None, row[key]) for key, value in wanted.items())]


@app.command()
def diff(first: Run, second: Run, runs: Runs = Path("runs"), as_json: Json = False) -> None:
    """Show how two runs differ: in settings, data, sources, versions of the environment, and results."""
    from fedtide.runs.catalog import differences, find

    a, b = find(runs, first), find(runs, second)
    found, heads = differences(a, b), ("part", "name", "first", "second")
    if as_json:
        print(json.dumps([dict(zip(heads, each, strict=True)) for each in found]))
    elif found:
        print_table((*heads[:2], a.name, b.name), [[shortened(str(cell)) for cell in each] for each in found])
    else:
        print(f"{a.name} and {b.name} do not differ")


@app.command()
def remove(
    names: Annotated[list[str] | None, typer.Argument(metavar="RUN...", help="The runs.")] = None,
    runs: Runs = Path("runs"),
    state: State = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask; also remove what `compare` needs.")] = False,
) -> None:
    """Remove run directories. The report and MLflow keep what they have of them."""
    from fedtide.core.storage.locks import held
    from fedtide.records.run_directory import read_json
    from fedtide.runs.catalog import find
    from fedtide.settings.params import Params

    if bool(names) == bool(state):
        raise SettingsError("name the runs to remove, or give their --state, such as --state failed")
    chosen = names or [row["run"] for row in _listed(runs, state=state)]
    paths = list(dict.fromkeys(find(runs, name) for name in chosen))
    grid = Params.read(PARAMS).grid() if PARAMS.is_file() else []
    wanted = [{**run.canonical(), "label": run.label, "initializer_label": run.initializer_label} for run in grid]
    if needed := ", ".join(path.name for path in paths if read_json(path / "settings.json") in wanted):
        needed = f"the comparison of {PARAMS} needs {needed}"
        if not yes:
            raise SettingsError(f"{needed}; --yes removes the runs nevertheless")
        log(needed)
    with ExitStack() as holding:
        for path in paths:
            holding.enter_context(held(path / ".lock", f"{path}: a process is working on this run"))
        if paths and not yes:
            typer.confirm(f"Remove {', '.join(path.name for path in paths)}?", abort=True, err=True)
        for path in paths:
            shutil.rmtree(path)
    print(f"{len(paths)} run{'s' * (len(paths) != 1)} removed; the report and MLflow were not changed")


@app.command()
def pack(
    archive: Annotated[Path, typer.Argument(help="File to write, such as runs.zip.")],
    runs: Runs = Path("runs"),
    most: Annotated[str | None, typer.Option("--max", metavar="SIZE", help="Largest size, such as 16MB.")] = None,
) -> None:
    """Write the records of runs to an archive for `fedtide runs merge`; unfinished runs come with their newest checkpoint."""
    from pydantic import ByteSize, TypeAdapter, ValidationError

    from fedtide.runs.archive import pack as write

    try:
        limit = None if most is None else int(TypeAdapter(ByteSize).validate_python(most))
    except ValidationError:
        raise SettingsError(f"--max = {shortened(repr(most))}: use a size such as 16MB") from None
    creatable(archive.parent)
    packed, left = write(runs, archive, limit)
    for name, reason in left.items():
        log(f"left out {name}: {reason}")
    print(f"{archive}: {len(packed)} runs, {decimal(archive.stat().st_size)}; {len(left)} left out")


@app.command()
def merge(
    archive: Annotated[Path, typer.Argument(help="File that `fedtide runs pack` has written.")],
    runs: Runs = Path("runs"),
    overrides: Override = None,
) -> None:
    """Add the runs of an archive to a folder. Those made with other settings, data or code, or damaged, are refused."""
    from fedtide.runs.archive import merge as add

    merged, known = add(archive, creatable(runs), lambda path: read_params(PARAMS, overrides, path).run())
    print(f"{len(merged)} runs merged into {runs}; {len(known)} already there")
