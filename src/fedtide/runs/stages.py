"""The stages of the pipeline as functions from settings to declared files, for the command line and DVC."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedtide.core.array_types import Ints
from fedtide.core.errors import SettingsError
from fedtide.core.extras import missing, require
from fedtide.core.files import write_json
from fedtide.core.hashing import short_hash
from fedtide.mirror.server import Server
from fedtide.mirror.workspace import MlflowOptions, Workspace
from fedtide.records.summary import Summary, headline
from fedtide.runs import identity
from fedtide.runs.compare import compare
from fedtide.runs.identity import run_key
from fedtide.runs.progress import Watch
from fedtide.settings.experiment import TrackingSettings
from fedtide.settings.params import Params
from fedtide.settings.run import RunSettings
from fedtide.settings.scores import Score, main_score
from fedtide.world.concepts import seen_classes
from fedtide.world.timeline import Timeline
from fedtide.worlds.build import build_timeline
from fedtide.worlds.files import timeline_for, world_file, world_identity, world_origin
from fedtide.worlds.prepared import load_data

if TYPE_CHECKING:
    from fedtide.report.build import ReportSummary
    from fedtide.report.charts.pictures import Drawing
    from fedtide.report.parts import Contents

Log = Callable[[str], None]


def folder(path: Path) -> Path:
    """A writable folder, created if missing; a SettingsError if that fails."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"{path}: cannot create this folder ({error.strerror})") from None
    if not os.access(path, os.W_OK):
        raise SettingsError(f"{path}: this folder cannot be written")
    return path


def workspace(
    params: Params, runs: Path, worlds: Path | None, mlruns: Path | None, log: Log | None = None
) -> Workspace:
    """The workspace of a comparison, which is named after the settings shared by its runs.

    Where MLflow is not installed it has no place in MLflow, which is logged.

    Raises:
        SettingsError: MLflow is not installed, but settings name its server or a model to register.
    """
    tracking = params.experiment.tracking
    if tracking.mlflow and mlruns and missing("mlflow"):
        for key in ("uri", "register"):
            if getattr(tracking, key) is not None:
                require("mlflow", f"tracking.{key}")
        mlruns = None
        if log is not None:
            log("MLflow is not installed, so runs are not mirrored there; pip install 'fedtide[mlflow]'")
    shared = params.run().canonical()
    for key in ("algorithm", "initialiser", "seed", "world_seed"):
        shared.pop(key)
    name = f"{shared['data']['name']} {shared['scenario']['name']} {short_hash(shared)}"
    where = mlflow_place(tracking, mlruns) if tracking.mlflow and mlruns else None
    return Workspace(
        folder(runs), worlds, where, tracking.experiment, name, MlflowOptions.of(tracking), tracking.loggers
    )


def mlflow_place(tracking: TrackingSettings, mlruns: Path) -> Path | Server:
    """MLflow's server if there is one in the settings, else its folder."""
    return Server.at(tracking.uri) if tracking.uri else mlruns


def update_mlflow(params: Params, directories: Sequence[Path], mlruns: Path, log: Log) -> int:
    """Bring MLflow, on its server or in a folder, up to date with run directories; the number of runs that are left out.

    A SettingsError if its store is unusable.
    """
    from fedtide.mirror.mlflow import mirror
    from fedtide.mirror.stored_data import stored_data

    experiment, root = params.experiment, Path(params.run().data.root)
    where = mlflow_place(experiment.tracking, mlruns)
    return mirror(
        directories,
        where,
        experiment.tracking.experiment,
        log,
        options=MlflowOptions.of(experiment.tracking),
        data=lambda directory: stored_data(directory, root),
    )


def download(params: Params, out: Path) -> dict[str, Any]:
    """Fetch and prepare the dataset; write its description to ``out`` (JSON)."""
    data = load_data(params.run())
    facts = {
        "name": data.name,
        "kind": data.kind,
        "digest": data.digest,
        "classes": data.num_classes,
        "sample": list(data.input_shape),
        "train": len(data.train_labels),
        "test": len(data.test_labels),
        "train_per_class": np.bincount(data.classes(slice(None)), minlength=data.num_classes).tolist(),
    }
    if data.task != "classification":
        facts = {"task": data.task, "outputs": data.outputs, **facts}
        del facts["classes"], facts["train_per_class"]
    folder(out.parent)
    write_json(out, facts)
    return facts


def partition(params: Params, out: Path, log: Log) -> list[Path]:
    """Write the timeline of every compared seed to ``out``, each with a summary and a picture."""
    from fedtide.world.picture import draw, summary

    folder(out)
    written: dict[Path, tuple[RunSettings, str]] = {}
    data = load_data(params.run())
    for settings in params.grid():
        identity = world_identity(settings, data)
        written.setdefault(world_file(out, settings, identity), (settings, identity))
    for path, (settings, identity) in written.items():
        timeline = build_timeline(settings, data)
        labels = seen_classes(data, timeline.concepts)
        timeline.save(path, identity)
        write_json(path.with_suffix(".json"), summary(timeline, labels))
        draw(timeline, labels, path.with_suffix(".png"), class_names(settings))
        log(f"{path.name}: {timeline.num_clients} clients, {timeline.rounds} rounds, {timeline.sessions} sessions")
    ours = [file for file in out.iterdir() if re.fullmatch(r"seed-\d+-[0-9a-f]+\.(npz|json|png)", file.name)]
    for stale in [file for file in ours if file.with_suffix(".npz") not in written]:
        stale.unlink()
    return list(written)


def class_names(settings: RunSettings) -> tuple[str, ...]:
    """Names of the data's classes, if its settings give them."""
    found = getattr(settings.data, "classes", ())
    return found if isinstance(found, tuple) else ()


def train(
    params: Params, where: Workspace, watch: Watch, algorithms: Sequence[str] | None = None, out: Path | None = None
) -> tuple[list[Summary], int | None]:
    """Execute the grid, or its runs of some algorithms; returns as :func:`fedtide.runs.compare.compare`.

    Unless stopped, ``out`` gets the outcomes as JSON.
    """
    grid = params.grid()
    _refuse_unrecorded(params, grid)
    if algorithms is not None:
        if unknown := set(algorithms) - set(params.experiment.compare.algorithms):
            raise SettingsError(f"not among compare.algorithms: {', '.join(sorted(unknown))}")
        grid = [settings for settings in grid if settings.label in algorithms]
    experiment = params.experiment
    score = Score(experiment.report.metric)
    summaries, stopped = compare(grid, where, experiment.compare.workers, watch, hosts=experiment.hosts, score=score)
    if out is not None and stopped is None:
        folder(out.parent)
        write_json(out, {"runs": [_outcome(summary) for summary in summaries]})
    return summaries, stopped


def _outcome(summary: Summary) -> dict[str, Any]:
    """What DVC keeps of a run."""
    main, found = main_score(summary.get("task", "classification")), headline(summary)
    ahead = [found.name] if found is not None and found.score.ahead else [f"best_{main.name}"]
    keys = ("run_key", "label", "initialiser", "seed", "state", "rounds", f"final_{main.name}", *ahead)
    return {key: _rounded(summary.get(key)) for key in keys}


def _refuse_unrecorded(params: Params, grid: Sequence[RunSettings]) -> None:
    """Refuse a ``report.metric`` that some runs would not record, before they are executed."""
    score = Score(params.experiment.report.metric)
    for settings in grid:
        if score.metric is not None and score.metric not in settings.evaluation.metrics:
            raise SettingsError(
                f"report.metric = {score.name}: {settings.label} does not record it; add {score.metric} to "
                "evaluation.metrics"
            )


def _rounded(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value


def run_directories(params: Params, runs: Path) -> list[Path]:
    """Run directories of the grid, existing or not."""
    data = load_data(params.run())
    return [runs / run_key(settings, data) for settings in params.grid()]


_ROWS = 5000  # most clients for which the picture of who participates is drawn, a row per client


def report(
    params: Params, runs: Path, worlds: Path | None, out: Path, command: str, tuning: Path | None = None
) -> ReportSummary:
    """Build the report of the grid from its run directories, with the Pareto front of a search if its folder is given."""
    from fedtide.report.build import build

    directories, contents, timeline, labels = _reported(params, runs, worlds)
    first = params.grid()[0]
    origin = world_identity(first, load_data(first))
    pictures = [world_file(worlds, first, origin).with_suffix(".png")] if worlds else []
    if not pictures or not pictures[0].is_file():
        from fedtide.world.picture import draw

        pictures = [folder(out) / "world.png"]
        draw(timeline, labels, pictures[0], class_names(first))
    contents = replace(contents, command=command, timeline_pictures=pictures, tuning=tuning)
    return build(directories, folder(out), contents)


def figures(params: Params, runs: Path, worlds: Path | None) -> list[Drawing]:
    """The figures of the report of the grid, none of them drawn yet."""
    from fedtide.report import parts
    from fedtide.world.picture import drawn

    directories, contents, timeline, labels = _reported(params, runs, worlds)
    world = drawn(timeline, labels, class_names(params.grid()[0]))
    return parts.figures.of(parts.Source.read(directories, replace(contents, timeline_pictures=[world])))


def _reported(params: Params, runs: Path, worlds: Path | None) -> tuple[list[Path], Contents, Timeline, Ints]:
    """Run directories, contents of the report, the timeline of the first run and its labels."""
    from fedtide.report.parts import Contents, Pace
    from fedtide.report.sections.world import raster, seen_concepts
    from fedtide.report.transitions import Rules
    from fedtide.runs.cohorts import movements, presence_and_cohorts

    data, grid = load_data(params.run()), params.grid()
    _refuse_unrecorded(params, grid)
    first, directories = grid[0], run_directories(params, runs)
    if not any((directory / "settings.json").is_file() for directory in directories):
        raise SettingsError(
            f"no runs to report: {runs} has none of the {len(directories)} of `compare`; run `fedtide compare` first"
        )
    timeline = timeline_for(first, data, worlds)
    labels = seen_classes(data, timeline.concepts)
    chosen = params.experiment.report
    few = timeline.num_clients <= _ROWS
    contents = Contents(
        chosen.title,
        chosen.last,
        command="",
        rules=Rules(chosen.transition_window, chosen.transition_counting, chosen.reference, chosen.rho),
        speed=Pace(chosen.target, chosen.baseline),
        cohorts=raster(*presence_and_cohorts(first, timeline, labels)) if few else None,
        concepts=seen_concepts(timeline),
        score=Score(chosen.metric),
        moves=movements(timeline),
        table=first.data if getattr(first.data, "client", None) and first.data.name == "table" else None,
        formats=chosen.formats,
    )
    return directories, contents, timeline, labels


def inputs(params: Params, tuned: Sequence[RunSettings], out: Path) -> None:
    """Write what the other stages depend on: settings as runs resolve them, and hashes of the code and the files they use.

    ``algorithms/<label>.json`` is for the runs of a label, ``worlds.json`` for the timelines, ``search.json`` for the search,
    ``report.json`` for the report. DVC's stages depend on these files, not on parameters: what changes a run key reaches the
    stages that use the run, wherever it is set or left at its default, and what does not reaches none. Plug-ins and files
    outside the project count, too.

    Args:
        tuned: settings of the runs that a search may execute.
    """
    experiment, grid = params.experiment, params.grid()
    compare, written = experiment.compare, dict[str, Any]()
    for label in compare.algorithms:
        runs = [run for run in grid if run.label == label]
        written[f"algorithms/{label}.json"] = {
            "runs": {f"{run.initialiser_label}-s{run.seed}": run.canonical() for run in runs},
            "code": _code(run for run in runs if run.seed == compare.seeds[0]),
        }
    worlds = [[run.world(), *world_origin(run)] for run in grid]
    written["worlds.json"] = list({short_hash(world): world for world in worlds}.values())
    written["search.json"] = {
        "run": params.run(seed=experiment.tune.run_seeds[0]).canonical(),
        "tune": experiment.tune.model_dump(mode="json"),
        "code": _code(tuned),
        "worlds": short_hash([world_origin(run) for run in tuned]),
    }
    compared = compare.model_dump(mode="json", include={"algorithms", "initialisers", "seeds"})
    written["report.json"] = {"report": experiment.report.model_dump(mode="json"), "compare": compared}
    folder(out / "algorithms")
    for stale in {path for path in out.rglob("*") if path.is_file()} - {out / name for name in written}:
        stale.unlink()
    for name, values in written.items():
        write_json(out / name, values)


def _code(runs: Iterable[RunSettings]) -> str:
    return short_hash([part for run in runs for part in identity.code(run)])
