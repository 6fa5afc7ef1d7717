"""The stages of the pipeline as functions from settings to declared files, for the command line and DVC."""

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedtide.core.errors import SettingsError
from fedtide.core.storage.files import folder, short_hash, write_json
from fedtide.records.summary import Summary, headline
from fedtide.runs.compare import compare, refuse_unrecorded
from fedtide.runs.display.progress import Watch
from fedtide.runs.open_run import code
from fedtide.runs.workspace import Workspace
from fedtide.settings.params import Params
from fedtide.settings.run import RunSettings
from fedtide.settings.scores import Score, main_score
from fedtide.world.building.build import build_timeline, world_file, world_identity, world_origin
from fedtide.world.concepts import seen_classes
from fedtide.world.storage.prepared import load_data

Log = Callable[[str], None]


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


def timeline(params: Params, out: Path, log: Log) -> list[dict[str, Any]]:
    """Write the timeline of every compared seed to ``out``, each with a summary and a picture.

    Returns the ``file`` of each timeline, and its number of ``clients``, ``rounds`` and ``sessions``.
    """
    from fedtide.report.picture import draw, names_in, summary

    written: dict[Path, tuple[RunSettings, str]] = {}
    found: list[dict[str, Any]] = []
    data = load_data(params.run())
    for settings in params.grid():
        identity = world_identity(settings, data)
        written.setdefault(world_file(out, settings, identity), (settings, identity))
    for path, (settings, identity) in written.items():
        timeline = build_timeline(settings, data)
        folder(out)
        labels = seen_classes(data, timeline.concepts)
        timeline.save(path, identity)
        names = names_in(data, settings, timeline)
        write_json(path.with_suffix(".json"), summary(timeline, labels, names))
        draw(timeline, labels, path.with_suffix(".png"), names)
        counts = {"clients": timeline.num_clients, "rounds": timeline.rounds, "sessions": timeline.sessions}
        log(f"{path.name}: {', '.join(f'{count} {what}' for what, count in counts.items())}")
        found.append({"file": str(path), **counts})
    ours = [file for file in out.iterdir() if re.fullmatch(r"seed-\d+-[0-9a-f]+\.(npz|json|png)", file.name)]
    for stale in [file for file in ours if file.with_suffix(".npz") not in written]:
        stale.unlink()
    return found


def train(
    params: Params, where: Workspace, watch: Watch, algorithms: Sequence[str] | None = None, out: Path | None = None
) -> tuple[list[Summary], int | None]:
    """Execute the grid, or its runs of some algorithms; returns as :func:`fedtide.runs.compare.compare`.

    Unless stopped, ``out`` gets the outcomes as JSON.
    """
    grid = params.grid()
    refuse_unrecorded(params, grid)
    if algorithms is not None:
        if unknown := set(algorithms) - set(params.experiment.compare.algorithms):
            raise SettingsError(f"not among compare.algorithms: {', '.join(sorted(unknown))}")
        grid = [settings for settings in grid if settings.label in algorithms]
    experiment = params.experiment
    score = Score(experiment.report.metric)
    summaries, stopped = compare(grid, where, experiment.compare, watch, score=score)
    if out is not None and stopped is None:
        folder(out.parent)
        write_json(out, {"runs": [_outcome(summary) for summary in summaries]})
    return summaries, stopped


def _outcome(summary: Summary) -> dict[str, Any]:
    """What DVC keeps of a run."""
    main, found = main_score(summary.get("task", "classification")), headline(summary)
    final = f"final_{main.name}"
    more = [f"best_{main.name}"] if found is None or found.name == final else [found.name, found.beside]
    keys = ("run_key", "label", "initializer", "seed", "state", "rounds", *dict.fromkeys((final, *more)))
    values = {key: summary.get(key) for key in keys}
    return {key: round(value, 6) if isinstance(value, float) else value for key, value in values.items()}


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
    written: dict[str, Any] = {}
    compare = experiment.compare
    for label in compare.algorithms:
        runs = [run for run in grid if run.label == label]
        written[f"algorithms/{label}.json"] = {
            "runs": {f"{run.initializer_label}-s{run.seed}": run.canonical() for run in runs},
            "code": _code(run for run in runs if run.seed == compare.seeds[0]),
        }
    worlds = [[run.world(), *world_origin(run)] for run in grid]
    written["worlds.json"] = list({short_hash(world): world for world in worlds}.values())
    written["search.json"] = {
        "run": params.run(seed=experiment.tune.run_seeds[0]).canonical(),
        "tune": experiment.tune.canonical(),
        "code": _code(tuned),
        "worlds": short_hash([world_origin(run) for run in tuned]),
    }
    compared = compare.model_dump(mode="json", include={"algorithms", "initializers", "seeds"})
    written["report.json"] = {"report": experiment.report.canonical(), "compare": compared}
    folder(out / "algorithms")
    for stale in {path for path in out.rglob("*") if path.is_file()} - {out / name for name in written}:
        stale.unlink()
    for name, values in written.items():
        write_json(out / name, values)


def _code(runs: Iterable[RunSettings]) -> str:
    return short_hash([part for run in runs for part in code(run)])
