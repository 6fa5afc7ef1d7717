"""The report of a comparison, from its settings and its run directories."""

from dataclasses import replace
from pathlib import Path

from fedtide.core.array_types import Ints
from fedtide.core.errors import SettingsError
from fedtide.core.storage.files import creatable
from fedtide.report import parts
from fedtide.report.build import ReportSummary, build
from fedtide.report.charts.fonts import file_of
from fedtide.report.charts.pictures import Drawing
from fedtide.report.parts import Contents
from fedtide.report.picture import Names, drawn, names_in
from fedtide.report.sections.population import movements
from fedtide.report.sections.world import presence_and_cohorts, raster
from fedtide.runs.compare import refuse_unrecorded
from fedtide.runs.open_run import run_key
from fedtide.settings.params import Params
from fedtide.world.building.build import timeline_for, world_file, world_identity
from fedtide.world.concepts import seen_classes
from fedtide.world.storage.prepared import load_data
from fedtide.world.timeline import Timeline


def run_directories(params: Params, runs: Path) -> list[Path]:
    """Run directories of the grid, existing or not."""
    data = load_data(params.run())
    return [runs / run_key(settings, data) for settings in params.grid()]


_ROWS = 5000  # most clients for which the picture of who participates is drawn, a row per client


def report(params: Params, runs: Path, worlds: Path | None, out: Path, command: str) -> ReportSummary:
    """Build the report of the grid from its run directories."""
    directories, contents, timeline, labels, names = _reported(params, runs, worlds)
    first = params.grid()[0]
    origin = world_identity(first, load_data(first))
    world: Path | bytes | None = world_file(worlds, first, origin).with_suffix(".png") if worlds else None
    if not (isinstance(world, Path) and world.is_file()):
        world = file_of(drawn(timeline, labels, names), format="png")
    return build(directories, creatable(out), replace(contents, command=command, world=world))


def figures(params: Params, runs: Path, worlds: Path | None) -> list[Drawing]:
    """The figures of the report of the grid, none of them drawn yet."""
    directories, contents, timeline, labels, names = _reported(params, runs, worlds)
    world = drawn(timeline, labels, names)
    return parts.figures.of(parts.Source.read(directories, replace(contents, world=world)))


def _reported(params: Params, runs: Path, worlds: Path | None) -> tuple[list[Path], Contents, Timeline, Ints, Names]:
    """Run directories, contents of the report, the timeline of the first run, its labels and names."""
    data, grid = load_data(params.run()), params.grid()
    refuse_unrecorded(params, grid)
    first, directories = grid[0], run_directories(params, runs)
    if not any((directory / "settings.json").is_file() for directory in directories):
        others = sum(1 for _ in runs.glob("*/settings.json"))
        there = f", but {others} other{'s' * (others != 1)}" if others else ""
        raise SettingsError(
            f"no runs to report: {runs} has none of the {len(directories)} runs of `compare`{there}; run `fedtide compare` "
            "first, with the same settings"
        )
    timeline = timeline_for(first, data, worlds)
    labels = seen_classes(data, timeline.concepts)
    names = names_in(data, first, timeline)
    few = timeline.num_clients <= _ROWS
    contents = Contents(
        params.experiment.report,
        command="",
        cohorts=raster(*presence_and_cohorts(first, timeline, labels), names.clients) if few else None,
        moves=movements(timeline),
        periods=[str(name) for name in timeline.notes.get("periods", ())],
        classes=names.classes,
    )
    return directories, contents, timeline, labels, names
