"""Whether run directories are what the suite asks for: its worlds, its seeds, its budgets, and records that nobody changed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedtide.core.errors import SettingsError
from fedtide.records.run_directory import RunDirectory, read_json
from fedtide.runs.check import check_run
from fedtide.settings.params import Params
from fedtide.settings.run import RunSettings
from fedtide.studies.tide.campaign import REFUSED, RUNS, SEARCH, all_diverged, refuse_other_data
from fedtide.studies.tide.method import METHOD_FILE, frame
from fedtide.studies.tide.scores import DIVERGED, Row, row, untrained
from fedtide.studies.tide.suite import REFERENCE_LINES, World, chosen, difference, given, given_of
from fedtide.studies.tuning.space import Space
from fedtide.studies.tuning.trial import score, scored_rounds
from fedtide.studies.tuning.until import cut, last_period
from fedtide.world.building.build import timeline_for
from fedtide.world.storage.prepared import load_data
from fedtide.world.timeline import Timeline


@dataclass(frozen=True)
class Verified:
    """What was found of a method.

    Attributes:
        method: its name. rows: of its runs, without those of worlds with problems. problems: a line each. refused: why it is
            not applicable in a world, by the world's name.
    """

    method: str
    rows: tuple[Row, ...]
    problems: tuple[str, ...]
    refused: Mapping[str, str]


def methods_in(folder: Path) -> list[Path]:
    """Folders of methods: ``folder`` itself, or those in it.

    Raises:
        SettingsError: there are none.
    """
    if (folder / METHOD_FILE).is_file():
        return [folder]
    found = sorted(file.parent for file in folder.glob(f"*/{METHOD_FILE}"))
    if not found:
        raise SettingsError(f"{folder}: no method folder (with a {METHOD_FILE}) found; see `fedtide tide run`")
    return found


def verify(home: Path, worlds: Sequence[World]) -> Verified:
    """Verify the folder of one method, world by world; nothing in it is changed, and the method's plug-ins are not needed.

    The timelines are built again from the suite's settings, so the worlds' data has to be there.
    """
    rows: list[Row] = []
    problems: list[str] = []
    refused: dict[str, str] = {}
    for world in worlds:
        place = home / world.name
        if (place / REFUSED).is_file() and not _run_folders(place / RUNS):
            refused[world.name] = (place / REFUSED).read_text(encoding="utf-8").strip()
            continue
        try:
            found, wrong = _world(home.name, world, place) if place.is_dir() else ([], ["not run"])
        except SettingsError as error:
            found, wrong = [], [str(error)]
        rows += [] if wrong else found
        problems += [f"{home.name}, {world.name}: {line}" for line in wrong]
    return Verified(home.name, tuple(rows), tuple(problems), refused)


def _world(method: str, world: World, home: Path) -> tuple[list[Row], list[str]]:
    """Rows of the seeds, and problems."""
    refuse_other_data(world)
    params = frame(method, world)
    winners, problems = _search(params, home / SEARCH / RUNS)
    rows: list[Row] = []
    folders = _run_folders(home / RUNS)
    if not folders and all_diverged(home / SEARCH):
        return untrained(method, world), problems
    if not winners:
        problems.append("no trial of the study is complete")
    for seed, timeline in world.timelines.items():
        named = [path for path in folders if _recorded(path).get("seed") == seed]
        if len(named) != 1:
            problems.append(f"seed {seed}: {len(named)} runs; exactly one is required")
            continue
        path = named[0]
        folders.remove(path)
        if chosen(_recorded(path)) not in winners:
            problems.append(f"{path.name}: its settings differ from those of the best trial")
        found, wrong = _run(method, world, path, params.run(seed=seed), timeline)
        rows += found
        problems += [f"{path.name}: {line}" for line in wrong]
    return rows, problems + [f"{path.name}: this run is not part of the suite" for path in folders]


def _run(method: str, world: World, path: Path, own: RunSettings, timeline: Timeline) -> tuple[list[Row], list[str]]:
    """The row of a run, and what is wrong with it; ``own``: settings at its seed that a method does not choose."""
    checked, directory = check_run(path), RunDirectory(path)
    limits, line = world.limits, method in REFERENCE_LINES
    if checked.state != "intact":
        return [], list(checked.problems) or [f"it is {checked.state}"]
    found, problems = row(method, world, own.seed, directory, timeline), _differs(path, own, "world")
    manifest = read_json(path / "manifest.json") or {}
    frozen = limits.timelines.get(own.seed)
    for what, mine, theirs in (
        ("the timeline built here has digest", timeline.digest, frozen),
        ("it ran on timeline", manifest.get("timeline"), timeline_for(own, load_data(own)).digest if line else frozen),
        ("it ran on data", manifest.get("data"), limits.data),
    ):
        if mine != theirs:
            problems.append(f"{what} {mine}, the suite has {theirs}")
    if found.state not in ("complete", DIVERGED):
        problems.append(f"it is {found.state}")
    elif found.state == "complete" and (done := len(directory.history())) != timeline.rounds:
        problems.append(f"it has {done} rounds, the suite requires {timeline.rounds}")
    if found.bytes > limits.bytes and not line:
        problems.append(f"it has sent {found.bytes:,} bytes, the budget is {limits.bytes:,.0f}")
    return [found], problems


def _search(params: Params, runs: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """What the best trials of a search have chosen, none if no trial is complete, and what is wrong with it."""
    folders = _run_folders(runs)
    problems: list[str] = []
    options, space = params.experiment.tune, Space(params)
    data = load_data(space.base)
    own = cut(space.settings({}), last_period(space.base, data, options.until)[0])
    rounds = scored_rounds(timeline_for(own, data), options, own.evaluation)
    if len(folders) > options.trials:
        problems.append(f"{len(folders)} trials, the budget is {options.trials}")
    values = []
    for path in folders:
        directory = RunDirectory(path)
        wrong = [*check_run(path).problems, *_differs(path, own, "study")]
        problems += [f"trial {path.name}: {line}" for line in wrong]
        complete = (directory.summary() or {}).get("state") == "complete"
        value = score(directory.history(), options.metric, rounds) if complete else None
        values += [] if value is None else [(value, chosen(_recorded(path)))]
    most = max((value for value, _ in values), default=None)
    return [choice for value, choice in values if value == most], problems


def _differs(path: Path, own: RunSettings, whose: str) -> list[str]:
    """A line if the recorded settings differ from ``own`` in what a method does not choose."""
    key = difference(given_of(_recorded(path), own, f"{path.name}/settings.json"), given(own))
    return [f"its settings differ from those of the {whose} ({key})"] if key else []


def _run_folders(runs: Path) -> list[Path]:
    return sorted(path.parent for path in runs.glob("*/settings.json"))


def _recorded(path: Path) -> dict[str, Any]:
    """The settings that a run has recorded."""
    return read_json(path / "settings.json") or {}
