"""A method's search and runs in every world. What is there is reused, what was interrupted continues."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from fedtide.core.errors import SettingsError
from fedtide.core.storage.files import make_folder, write_text
from fedtide.core.storage.locks import held
from fedtide.federation.assembly.parts import assembled
from fedtide.records.run_directory import RunDirectory
from fedtide.runs.compare import compare, unsuccessful
from fedtide.runs.display.progress import Watch
from fedtide.runs.workspace import Workspace
from fedtide.settings.params import Params
from fedtide.studies.tide.method import METHOD_FILE, Method
from fedtide.studies.tide.scores import DIVERGED
from fedtide.studies.tide.suite import World
from fedtide.studies.tuning.study import tune
from fedtide.world.building.build import timeline_for
from fedtide.world.storage.prepared import load_data

SEARCH, RUNS, REFUSED = "search", "runs", "refused.txt"
"""Names in the folder of a world: of the search, of the runs, and of the line that says why there are none."""
BEST = "best.yaml"
"""The settings of the runs, in the folder of the search."""


@dataclass(frozen=True)
class Outcome:
    """What became of a method in a world.

    Attributes:
        line: for a person. stopped: the signal that stopped it. failed: whether a run or a trial raised, or its process died.
    """

    line: str
    stopped: int | None = None
    failed: bool = False


def run_method(
    method: Method, worlds: Sequence[World], folder: Path, watch: Watch, overrides: list[str] | None = None
) -> list[Outcome]:
    """Search and run in every world, one after the other, until a signal stops it.

    Args:
        folder: gets ``<method>/method.yaml`` and, for every world, ``<method>/<world>/search`` and ``runs``.
        overrides: of settings that change no number, such as ``compare.cluster=...``.

    Raises:
        SettingsError: bad settings, data that is missing or not the suite's, the folder has another method of this name, or
            another process is at work there; before any run.
    """
    plans = {world.name: method.params(world, overrides) for world in worlds}
    for world in worlds:
        refuse_other_data(world)
    home = folder / method.name
    make_folder(home)
    outcomes: list[Outcome] = []
    with held(home / ".lock", f"{home}: another process is running this method in this folder"):
        _claim(home / METHOD_FILE, method)
        for world in worlds:
            outcomes.append(_in_world(plans[world.name], home / world.name, world.limits.trivial, watch))
            watch.log(f"{method.name}, {world.name}: {outcomes[-1].line}")
            if outcomes[-1].stopped is not None:
                break
    return outcomes


def refuse_other_data(world: World) -> None:
    """Refuse prepared data that is not what the suite was frozen with."""
    settings = world.params.run()
    digest = load_data(settings).digest
    if digest != world.limits.data:
        raise SettingsError(
            f"world {world.name}: data {settings.data.name} has digest {digest}, the suite has {world.limits.data}"
        )


def _claim(file: Path, method: Method) -> None:
    """Write the method's file, or refuse a folder with another one."""
    content = yaml.safe_dump(method.settings.model_dump(mode="json"), sort_keys=False)
    if file.is_file() and file.read_text(encoding="utf-8") != content:
        raise SettingsError(
            f"{file}: another method of this name was run in this folder; rename the method, or set --out to another "
            "folder"
        )
    write_text(file, content)


def all_diverged(search: Path) -> bool:
    """Whether a search has ended, and each of its trials diverged."""
    trials = [RunDirectory(path.parent) for path in (search / RUNS).glob("*/settings.json")]
    states = {(trial.summary() or {}).get("state") for trial in trials}
    return (search / "trials.csv").is_file() and states == {DIVERGED}


def _in_world(params: Params, home: Path, trivial: float, watch: Watch) -> Outcome:
    """Search, then the runs of all seeds with what the search has found."""
    (home / REFUSED).unlink(missing_ok=True)
    if (refusal := _refusal(params)) is not None:
        make_folder(home)
        write_text(home / REFUSED, f"{refusal}\n")
        return Outcome(f"not applicable: {refusal}")
    try:
        found = tune(params, _workspace(home / SEARCH / RUNS, params), home / SEARCH, watch)
        if found.stopped is not None:
            return Outcome("interrupted", found.stopped)
        if found.failed:
            return Outcome(f"{len(found.failed)} trials failed: {found.failed[0]}", failed=True)
        best = Params.read(home / SEARCH / BEST)
        summaries, stopped = compare(best.grid(), _workspace(home / RUNS, params), params.experiment.compare, watch)
    except SettingsError as error:
        if all_diverged(home / SEARCH):
            return Outcome(f"all trials diverged, so every seed scores {trivial:g}")
        return Outcome(str(error), failed=True)
    states = [summary["state"] for summary in summaries]
    line = "; ".join([f"{states.count('complete')} of {len(states)} runs complete", *unsuccessful(summaries)])
    return Outcome(line, stopped, "failed" in states)


def _refusal(params: Params) -> str | None:
    """Why a world refuses a method, None if it does not: settings that do not fit together, whatever the machine."""
    settings = params.run()
    data = load_data(settings)
    timeline = timeline_for(settings, data)
    try:
        assembled(settings, timeline, data).workers.close()
    except SettingsError as error:
        return str(error)
    return None


def _workspace(runs: Path, params: Params) -> Workspace:
    runs.mkdir(parents=True, exist_ok=True)
    return Workspace(runs, loggers=params.experiment.tracking.loggers)
