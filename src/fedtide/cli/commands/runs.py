"""``fedtide runs``: list, compare, remove and move recorded runs."""

import json
import shutil
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.filesize import decimal

from fedtide.cli.options import PARAMS, Json, Override, Runs, read_params
from fedtide.cli.reporter import log, print_table
from fedtide.core.errors import SettingsError, nearest, shortened
from fedtide.core.storage.files import creatable, creating, folder

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
    from fedtide.runs.catalog import find

    if bool(names) == bool(state):
        raise SettingsError("name the runs to remove, or give their --state, such as --state failed")
    if state:
        paths = [runs / row["run"] for row in _listed(runs, state=state)]
    else:
        paths = list(dict.fromkeys(find(runs, name) for name in names or ()))
    try:
        if needed := ", ".join(_compared(paths)):
            raise SettingsError(f"the comparison of {PARAMS} needs {needed}")
    except SettingsError as reason:
        if not yes:
            raise SettingsError(f"{reason}; --yes removes the runs nevertheless") from None
        log(str(reason))
    with ExitStack() as holding:
        for path in paths:
            holding.enter_context(held(path / ".lock", f"{path}: a process is working on this run"))
        if paths and not yes:
            typer.confirm(f"Remove {', '.join(path.name for path in paths)}?", abort=True, err=True)
        for path in paths:
            shutil.rmtree(path)
    print(f"{len(paths)} run{'s' * (len(paths) != 1)} removed; the report and MLflow were not changed")


def _compared(paths: list[Path]) -> list[str]:
    """Names of the runs that the comparison of this folder consists of."""
    from fedtide.runs.catalog import recorded
    from fedtide.settings.params import Params

    grid = Params.read(PARAMS).grid() if PARAMS.is_file() else []
    wanted = [{**run.canonical(), "label": run.label, "initializer_label": run.initializer_label} for run in grid]
    found = []
    for path in paths:
        with suppress(SettingsError):  # of a run whose settings are damaged, which is of no use
            found += [path.name] if recorded(path) in wanted else []
    return found


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
    if not archive.name or archive.is_dir():
        raise SettingsError(f"{archive}: this is a folder; name the file to write, such as runs.zip")
    with creating(archive.parent):
        packed, left = write(runs, folder(archive.parent) / archive.name, limit)
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
