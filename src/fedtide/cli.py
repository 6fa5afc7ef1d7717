"""``fedtide``: the command line."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from fedtide.commands.diagnose import diagnose
from fedtide.commands.quadratic import quadratic
from fedtide.commands.reproduce import reproduce
from fedtide.describe import describe, listing
from fedtide.errors import SettingsError
from fedtide.params import Params
from fedtide.settings import Experiment
from fedtide.terminal import (
    LOG_WIDTH,
    PARAMS,
    Json,
    Mlruns,
    Override,
    ParamsFile,
    Quiet,
    Runs,
    Worlds,
    console,
    leave,
    mlruns_folder,
    say,
)

if TYPE_CHECKING:
    from fedtide.report.build import ReportSummary

app = typer.Typer(
    name="fedtide",
    help="Federated learning for moving populations: run, compare, tune, report.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def tell(summary: ReportSummary) -> None:
    """Print a report's table, results and warnings."""
    output = Console(highlight=False, width=None if sys.stdout.isatty() else LOG_WIDTH)
    output.print(summary.table)
    for line in (*summary.results, *summary.warnings):
        output.print(line, markup=False)
    output.print(f"\nreport: {summary.page}", markup=False)


@app.command()
def run(
    params: ParamsFile = PARAMS,
    overrides: Override = None,
    runs: Runs = Path("runs"),
    worlds: Worlds = Path("worlds"),
    mlruns: Mlruns = None,
    name: Annotated[str | None, typer.Option(help="Name of the run directory; default: the run key.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """One run of `algorithm`, `initialiser` and `seed`. A finished run is returned at once, a half-done one goes on."""
    from fedtide.compare import tracked
    from fedtide.progress import line_of_progress
    from fedtide.stages import place

    chosen = Params.read(params, overrides or ())
    where = place(chosen, runs, worlds, mlruns_folder(mlruns))
    with line_of_progress(console, quiet) as show:
        summary = tracked(chosen.run(), where, (lambda _: None) if quiet else say, show, name)
    accuracies = ("final_accuracy", "best_accuracy", "mean_last10_accuracy")
    keys = ("run_key", "state", "rounds", *accuracies, "bytes_up", "bytes_down", "seconds")
    if summary["state"] == "follower":
        return
    if as_json:
        print(json.dumps({key: summary.get(key) for key in keys}))
    elif summary["state"] == "complete":
        accuracy = summary["final_accuracy"]
        shown = "" if accuracy is None else f": final accuracy {accuracy:.2%}, best {summary['best_accuracy']:.2%}"
        print(f"{runs / (name or summary['run_key'])}{shown}")
    leave(summary)


@app.command()
def compare(
    params: ParamsFile = PARAMS,
    overrides: Override = None,
    runs: Runs = Path("runs"),
    worlds: Worlds = Path("worlds"),
    mlruns: Mlruns = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """All runs of `compare`: algorithms x initialisers x seeds, several at once; what is done is reused."""
    from fedtide.stages import place, train

    chosen = Params.read(params, overrides or ())
    where = place(chosen, runs, worlds, mlruns_folder(mlruns))
    summaries, stopped = train(chosen, where, (lambda _: None) if quiet else say)
    if as_json:
        print(json.dumps(summaries))
    if stopped is not None:
        leave({"state": "interrupted", "signal": stopped})


@app.command()
def report(
    params: ParamsFile = PARAMS,
    overrides: Override = None,
    runs: Runs = Path("runs"),
    worlds: Worlds = Path("worlds"),
    out: Annotated[Path, typer.Option(help="Folder of the report.")] = Path("report"),
    tuning: Annotated[Path | None, typer.Option(help="Folder of a search with tune.cost: shows its front.")] = None,
) -> None:
    """Tables, figures and one HTML page of the grid of `compare`, from its run directories."""
    from fedtide.stages import report as build

    chosen = Params.read(params, overrides or ())
    settings = "".join(f" --set {item}" for item in overrides or ())
    command = f"fedtide compare --params {params}{settings} && fedtide report --params {params}{settings}"
    if tuning:
        command = f"fedtide tune --params {params}{settings} --out {tuning} && {command} --tuning {tuning}"
    tell(build(chosen, runs, worlds, out, command, tuning))


@app.command()
def tune(
    params: ParamsFile = PARAMS,
    overrides: Override = None,
    runs: Runs = Path("runs"),
    out: Annotated[Path, typer.Option(help="Folder of the study.")] = Path("tuning"),
    mlruns: Mlruns = None,
) -> None:
    """Search good settings of `algorithm` on the validation split; the best become a file that --params accepts."""
    from fedtide.stages import place
    from fedtide.tuning.study import tune as search

    chosen = Params.read(params, overrides or ())
    where = place(chosen, runs, None, mlruns_folder(mlruns))
    result = search(chosen, where, out, say)
    if result.stopped is not None:
        leave({"state": "interrupted", "signal": result.stopped})
    print(result.text)


@app.command()
def download(
    params: ParamsFile = PARAMS,
    overrides: Override = None,
    out: Annotated[Path, typer.Option(help="Where to write what it is.")] = Path("data/dataset.json"),
) -> None:
    """Fetch the dataset and prepare it."""
    from fedtide import stages

    facts = stages.download(Params.read(params, overrides or ()), out)
    print(
        f"{facts['name']}: {facts['train']:,} training and {facts['test']:,} test samples, {facts['classes']} classes"
    )


@app.command()
def partition(
    params: ParamsFile = PARAMS,
    overrides: Override = None,
    out: Annotated[Path, typer.Option(help="Folder of the timelines.")] = Path("worlds"),
) -> None:
    """Write who is present when, with which data: one timeline per compared seed, with a summary and a picture."""
    from fedtide import stages

    stages.partition(Params.read(params, overrides or ()), out, say)


app.command()(reproduce)
app.command()(diagnose)
app.command()(quadratic)


@app.command("list")
def list_(
    kind: Annotated[str, typer.Argument(help="algorithms, scenarios, partitions, datasets, models, objectives, ...")],
    as_json: Json = False,
) -> None:
    """What can be chosen, by kind."""
    rows = listing(kind)
    if as_json:
        print(json.dumps(rows))
        return
    table = Table("name", "summary", box=None, pad_edge=False)
    for row in rows:
        table.add_row(row["name"], row["summary"])
    Console(highlight=False).print(table)


@app.command()
def show(kind: str, name: str) -> None:
    """Documentation, settings with bounds, and traffic of one plug-in."""
    print(describe(kind, name))


@app.command()
def schema() -> None:
    """JSON Schema of the settings file, for editors."""
    print(json.dumps(Experiment.model_json_schema(), indent=2))


@app.command()
def mirror(params: ParamsFile = PARAMS, runs: Runs = Path("runs"), mlruns: Mlruns = None) -> None:
    """Rebuild MLflow from the run directories: missing runs, missing rounds."""
    from fedtide.tracking.mlflow import mirror as rebuild

    experiment = Params.read(params).experiment.tracking.experiment if params.is_file() else "fedtide"
    folders = sorted(path.parent for path in runs.glob("*/manifest.json"))
    if not folders:
        raise SettingsError(f"{runs}: no run directories here")
    rebuild(folders, mlruns_folder(mlruns), experiment, say)


@app.command()
def ui(
    mlruns: Mlruns = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on the loopback interface.")] = 5000,
) -> None:
    """Open the MLflow UI on this machine."""
    from fedtide.tracking.mlflow import ui_command

    command, environment = ui_command(mlruns_folder(mlruns), port=port)
    say(f"http://127.0.0.1:{port}  (Ctrl-C ends it)")
    try:
        raise typer.Exit(subprocess.call(command, env={**os.environ, **environment}))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def guarded(function: Callable[[], None]) -> None:
    """Call an entry point: bad input is one line and exit status 2, a disk that fails is one and 1, Ctrl-C is 130."""
    logging.getLogger("mlflow").setLevel(logging.ERROR)
    try:
        function()
    except SettingsError as error:
        print(f"fedtide: {error}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        print(f"fedtide: {error}", file=sys.stderr)
        sys.exit(1)
    except typer.Exit as leave:
        sys.exit(leave.exit_code)
    except KeyboardInterrupt:
        print("fedtide: interrupted", file=sys.stderr)
        sys.exit(130)


def main() -> None:
    """Entry point of the command."""
    guarded(app)


if __name__ == "__main__":
    main()
