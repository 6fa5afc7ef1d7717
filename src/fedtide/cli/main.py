"""``fedtide``: the command line."""

import dataclasses
import json
import shlex
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fedtide import __version__
from fedtide.cli import completion
from fedtide.cli.commands.check import check, doctor
from fedtide.cli.commands.cite import cite
from fedtide.cli.commands.contribution import contribution
from fedtide.cli.commands.evaluate import evaluate
from fedtide.cli.commands.init import init
from fedtide.cli.commands.plot import plot
from fedtide.cli.commands.plugin import contract, new
from fedtide.cli.commands.predict import predict
from fedtide.cli.commands.reproduce import reproduce
from fedtide.cli.commands.runs import app as recorded_runs
from fedtide.cli.commands.tide import tide
from fedtide.cli.commands.trees import trees
from fedtide.cli.commands.ui import ui
from fedtide.cli.commands.watch import watch
from fedtide.cli.exits import exit_with, exit_with_all, exit_with_search, guarded
from fedtide.cli.options import (
    PARAMS,
    AllowFailures,
    ClusterOption,
    DryRun,
    Json,
    Like,
    Mlruns,
    Override,
    ParamsFile,
    Quiet,
    Rehearse,
    Runs,
    Seconds,
    Worlds,
    as_given,
    mlruns_named,
    read_params,
    with_cluster,
)
from fedtide.cli.reporter import log, print_report, print_table, progress, silent
from fedtide.core.discovery.shipped import DEFAULTS
from fedtide.core.errors import SettingsError
from fedtide.core.extras import require
from fedtide.core.storage.files import creatable

app = typer.Typer(name="fedtide", no_args_is_help=True, pretty_exceptions_enable=False)
mlflow = typer.Typer(name="mlflow", no_args_is_help=True, help="MLflow integration.")


@app.callback(invoke_without_command=True)
def fedtide(
    version: Annotated[bool, typer.Option("--version", is_eager=True, help="Show the version and exit.")] = False,
) -> None:
    """Simulate federated learning when clients come and go: run, compare, tune, report."""
    if version:
        print(__version__)
        raise typer.Exit


@app.command()
def run(
    context: typer.Context,
    params: ParamsFile = PARAMS,
    overrides: Override = None,
    runs: Runs = Path("runs"),
    worlds: Worlds = Path("worlds"),
    mlruns: Mlruns = None,
    name: Annotated[str | None, typer.Option(help="Name of the run directory. Default: the run key.")] = None,
    like: Like = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run one `algorithm`, `initializer` and `seed`. A finished run is loaded from disk, an interrupted one resumes."""
    from fedtide.records.summary import headline, of_global, score_in
    from fedtide.runs.catalog import find
    from fedtide.runs.execution import execute
    from fedtide.runs.workspace import workspace
    from fedtide.settings.scores import Score, main_score

    if like is not None and getattr(context.get_parameter_source("params"), "name", "") == "COMMANDLINE":
        raise SettingsError("--like and --params both give the settings of the run; use one of them")
    chosen = read_params(params, overrides, find(runs, like) if like is not None else None)
    where = workspace(chosen, creatable(runs), worlds, mlruns_named(mlruns), log)
    with progress(quiet) as watch:
        summary = execute(chosen.run(), where, name=name, watch=watch)
    main = main_score(chosen.experiment.task)
    scores = (f"final_{main.name}", f"best_{main.name}", f"mean_last10_{main.name}")
    found = headline(summary, Score(chosen.experiment.report.metric))
    first = [each.name for each in (found, of_global(summary, found)) if each is not None]
    keys = ("run_key", "state", "rounds", *dict.fromkeys((*scores, *first)), "bytes_up", "bytes_down", "seconds")
    if summary["state"] == "follower":
        return
    if as_json:
        more = ("stopped",) if "stopped" in summary else ()
        print(json.dumps({key: summary.get(key) for key in (*keys, *more)}))
    elif summary["state"] == "complete":
        shown = ""
        if found is not None:
            best, digits = score_in(summary, "best"), ".2%" if found.score.share else ".4f"
            beside = of_global(summary, found)
            shown = f": {found.words} {found.value:{digits}}"
            if beside is not None:
                shown += f", {beside.words} {beside.value:{digits}}"
            elif best is not None:
                shown += f", best {best:{digits}}"
        if "stopped" in summary:
            shown += f"; stopped after round {summary['rounds']}: {summary['stopped']}"
        said = "; of the default experiment, as there is no params.yaml" if params == DEFAULTS and like is None else ""
        print(f"{runs / (name or summary['run_key'])}{shown}{said}")
    exit_with(summary)


@app.command()
def compare(
    params: ParamsFile = PARAMS,
    overrides: Override = None,
    runs: Runs = Path("runs"),
    worlds: Worlds = Path("worlds"),
    mlruns: Mlruns = None,
    cluster: ClusterOption = None,
    allow_failures: AllowFailures = False,
    seconds: Seconds = None,
    dry_run: DryRun = False,
    rehearse: Rehearse = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run the grid of `compare`: algorithms x initializers x seeds, several at once. Finished runs are reused."""
    from fedtide.cli.stages import train
    from fedtide.runs.compare import refuse_unrecorded
    from fedtide.runs.jobs.signals import time_limit
    from fedtide.runs.workspace import workspace

    chosen = read_params(params, with_cluster(overrides, cluster))
    where = workspace(chosen, creatable(runs), worlds, mlruns_named(mlruns), log)
    refuse_unrecorded(chosen, grid := chosen.grid())
    if dry_run and rehearse:
        raise SettingsError("--dry-run and --rehearse: choose one")
    if dry_run:
        from fedtide.runs.dry_run import dry_run as planned

        found = planned(grid, where, chosen.experiment.compare.workers)
        print(json.dumps(found._asdict()) if as_json else found)
        return
    if rehearse:
        from fedtide.runs.dry_run import rehearse as one_round

        with progress(quiet) as watch:
            summaries, stopped = one_round(grid, where, chosen.experiment.compare, watch)
        if as_json:
            print(json.dumps(summaries))
        exit_with_all(summaries, stopped, allow_failures=False)
        return
    with progress(quiet) as watch, time_limit(seconds) as late:
        summaries, stopped = train(chosen, where, watch)
    if late.is_set() and stopped is not None:
        left = len(grid) - sum(summary["state"] != "interrupted" for summary in summaries)
        log(f"--seconds {seconds:g}: {left} of {len(grid)} runs left; re-run the same command to resume")
        stopped = None
    if as_json:
        print(json.dumps(summaries))
    exit_with_all(summaries, stopped, allow_failures or chosen.experiment.compare.allow_failures)


@app.command()
def report(
    params: ParamsFile = PARAMS,
    overrides: Override = None,
    runs: Runs = Path("runs"),
    worlds: Worlds = Path("worlds"),
    mlruns: Mlruns = None,
    out: Annotated[Path, typer.Option(help="Folder of the report.")] = Path("report"),
    as_json: Json = False,
) -> None:
    """Write tables, figures and an HTML page about the runs of `compare`, from their run directories."""
    require("report", "fedtide report")
    from fedtide.cli.reporter import described
    from fedtide.report.comparison import report as build
    from fedtide.runs.mlflow.results import record_report
    from fedtide.runs.workspace import workspace

    chosen = read_params(params, overrides)
    told = [item for item in overrides or () if not item.startswith("tracking")]  # changes no number
    settings = [*as_given(params, told), *(["--runs", runs] if runs != Path("runs") else [])]
    folders = ["--worlds", worlds] if worlds != Path("worlds") else []
    written = ["--out", out] if out != Path("report") else []
    steps = [["compare", *settings, *folders], ["report", *settings, *folders, *written]]
    command = " && ".join(shlex.join(["fedtide", *map(str, step)]) for step in steps)
    summary = build(chosen, runs, worlds, out, command)
    record_report(workspace(chosen, runs, worlds, mlruns_named(mlruns)), out, described(summary), log)
    if as_json:
        facts = {"page": str(summary.page), "complete": summary.complete, "total": summary.total}
        print(json.dumps({**facts, "results": summary.results, "warnings": summary.warnings}))
    else:
        print_report(summary)


@app.command()
def tune(
    params: ParamsFile = PARAMS,
    overrides: Override = None,
    runs: Runs = Path("runs"),
    out: Annotated[Path, typer.Option(help="Folder of the study.")] = Path("tuning"),
    mlruns: Mlruns = None,
    cluster: ClusterOption = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Tune the settings of `algorithm` on the validation split; the best ones are written to a file for --params."""
    require("tune", "fedtide tune")
    from fedtide.runs.workspace import workspace
    from fedtide.studies.tuning.study import planned_runs
    from fedtide.studies.tuning.study import tune as search

    chosen = read_params(params, with_cluster(overrides, cluster))
    where = workspace(chosen, creatable(runs), None, mlruns_named(mlruns), log)
    if dry_run:
        from fedtide.runs.dry_run import dry_run as planned

        found = planned([], where, chosen.experiment.tune.workers, *planned_runs(chosen, out, runs, log))
        print(json.dumps(found._asdict()) if as_json else found)
        return
    with progress(quiet) as watch:
        result = search(chosen, where, out, watch)
    if as_json:
        print(json.dumps(dataclasses.asdict(result)))
    exit_with_search(result, silent if as_json else print)


@app.command()
def download(
    params: ParamsFile = PARAMS,
    overrides: Override = None,
    out: Annotated[Path, typer.Option(help="Output file for the dataset's description.")] = Path("data/dataset.json"),
    as_json: Json = False,
) -> None:
    """Fetch and prepare the dataset."""
    from fedtide.cli import stages

    facts = stages.download(read_params(params, overrides), out)
    samples = f"{facts['train']:,} training and {facts['test']:,} test samples"
    told = f"{facts['outputs']} outputs" if "outputs" in facts else f"{facts['classes']} classes"
    print(json.dumps(facts) if as_json else f"{facts['name']}: {samples}, {told}")


@app.command()
def timeline(
    params: ParamsFile = PARAMS,
    overrides: Override = None,
    out: Annotated[Path, typer.Option(help="Folder of the timelines.")] = Path("worlds"),
    as_json: Json = False,
) -> None:
    """Write one timeline per compared seed (which clients are present when, with which data), a summary and a picture."""
    require("report", "fedtide timeline")
    from fedtide.cli import stages

    found = stages.timeline(read_params(params, overrides), out, log)
    if as_json:
        print(json.dumps(found))


app.command()(plot)
app.command()(cite)
app.command()(new)
app.command("test")(contract)
app.command()(init)
app.command()(predict)
app.command()(evaluate)
app.command()(check)
app.command()(doctor)
app.command()(contribution)
app.command()(trees)
app.command()(reproduce)
app.command()(ui)
app.command()(watch)
app.add_typer(recorded_runs)
app.add_typer(tide)
app.add_typer(mlflow)


@app.command("list")
def list_(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="Plug-in kind (algorithms, datasets, ...). Omit to list the kinds.", autocompletion=completion.kinds
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the plug-ins of a kind, or the kinds."""
    from fedtide.cli.commands.describe import kinds, listing

    rows = kinds() if kind is None else listing(kind)
    if as_json:
        print(json.dumps(rows))
    else:
        print_table(("name", "summary"), ((row["name"], row["summary"]) for row in rows))


@app.command()
def show(
    kind: Annotated[str, typer.Argument(autocompletion=completion.kinds)],
    name: Annotated[str, typer.Argument(autocompletion=completion.names)],
    as_json: Json = False,
) -> None:
    """Show documentation, settings with bounds, and traffic of a plug-in."""
    from fedtide.cli.commands.describe import describe, facts

    print(json.dumps(facts(kind, name)) if as_json else describe(kind, name))


@app.command()
def schema() -> None:
    """Print the JSON Schema of the settings file, for editors."""
    from fedtide.cli.commands.describe import broken
    from fedtide.settings.experiment import Experiment

    for reason in broken():
        log(f"not listed: {reason}")
    print(json.dumps(Experiment.model_json_schema(), indent=2))


@mlflow.command()
def sync(
    params: ParamsFile = PARAMS, overrides: Override = None, runs: Runs = Path("runs"), mlruns: Mlruns = None
) -> None:
    """Upload missing runs, rounds and models from run directories to MLflow. Exit status 1 if any was not uploaded."""
    require("mlflow", "fedtide mlflow sync")
    from fedtide.runs.check import run_directories
    from fedtide.runs.mlflow.upload import mirror
    from fedtide.runs.workspace import experiment_of, mlflow_place
    from fedtide.settings.params import Params

    chosen = read_params(params, overrides) if params != DEFAULTS or overrides else Params()
    tracking = chosen.experiment.tracking
    models = Path(chosen.run().data.root) if tracking.model else None
    where = mlflow_place(tracking, mlruns_named(mlruns))
    if mirror(run_directories(runs), where, experiment_of(tracking), log, models, tracking.register):
        raise typer.Exit(1)


def main() -> None:
    """Entry point of the command."""
    guarded(partial(app, prog_name="fedtide"))


if __name__ == "__main__":
    main()
