"""``fedtide init``: settings and a pipeline to begin with."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fedtide.cli.options import PARAMS
from fedtide.core.errors import SettingsError
from fedtide.core.extras import require
from fedtide.core.storage.files import write_json, write_text

SCHEMA = PARAMS.with_suffix(".schema.json")


class Template(StrEnum):
    """Settings to begin with."""

    sessions = "sessions"
    own_table = "own-table"
    long_tail = "long-tail"
    drift = "drift"
    flights = "flights"


def init(
    chosen: Annotated[
        Template | None,
        typer.Option("--template", help="Name of a settings template. Default: the default experiment."),
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="Infer settings from a table (.csv, .csv.gz, .parquet, .feather)."),
    ] = None,
    label: Annotated[str | None, typer.Option("--label", metavar="COLUMN", help="With --from: the label.")] = None,
    client: Annotated[str | None, typer.Option("--client", metavar="COLUMN", help="With --from: the client.")] = None,
    time: Annotated[
        list[str] | None,
        typer.Option("--time", metavar="COLUMN", help="With --from: the time; repeat for parts of dates."),
    ] = None,
    dvc: Annotated[bool, typer.Option("--dvc", help="Also write a DVC pipeline (dvc.yaml and its scripts).")] = False,
) -> None:
    """Write a commented params.yaml, from a template or for a table, and with --dvc the pipeline; nothing is overwritten.

    Beside it is params.schema.json, with which editors complete and check it.
    """
    from fedtide.authoring.project.pipeline import pipeline_files, write_pipeline
    from fedtide.authoring.project.templates import template
    from fedtide.settings.experiment import Experiment
    from fedtide.settings.reading.yaml_files import read_mapping

    if chosen and table:
        raise SettingsError("--template and --from exclude each other; give one of them")
    given = {"label": [label] if label else [], "client": [client] if client else [], "time": time or []}
    if any(given.values()) and not table:
        raise SettingsError(
            f"--{next(role for role in given if given[role])} requires --from, the table that has the column"
        )
    kept = dvc and PARAMS.exists() and not chosen and not table
    if PARAMS.exists() and not kept:
        raise SettingsError(f"{PARAMS} already exists and is not overwritten; rename it, or use another folder")
    compared = read_mapping(PARAMS).get("compare") if kept else None
    named = not kept or (isinstance(compared, dict) and compared.get("algorithms"))
    here = Path()
    files = pipeline_files(here) if dvc else {}
    sentences: list[str] = []
    text = template(chosen or Template.sessions)
    if table:
        require("data", "--from")
        from fedtide.authoring.project.table import settings_for

        text, sentences = settings_for(table, given)
    for sentence in sentences:
        print(sentence)
    if not kept:
        write_json(SCHEMA, Experiment.model_json_schema())
        write_text(PARAMS, f"# yaml-language-server: $schema={SCHEMA}\n{text}")
        print(f"{PARAMS}: written; start one run with `fedtide run`, its grid with `fedtide compare`")
    if dvc:
        in_git = write_pipeline(files, here)
        print("dvc.yaml, pipeline/: written; start them with `dvc repro`")
        if not in_git:
            print("this folder is not in git, which `dvc exp` requires: `git init && dvc config --unset core.no_scm`")
        if not named:
            print("params.yaml: `dvc repro` requires compare.algorithms, such as `compare: {algorithms: [fedavg]}`")
