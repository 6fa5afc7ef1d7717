"""Find an experiment, run what is missing of it, and keep its results up to date meanwhile."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from fedtide.core.discovery.shipped import SHIPPED
from fedtide.core.errors import SettingsError, nearest
from fedtide.core.plugins import PluginSettings
from fedtide.core.storage.files import folder, write_bytes
from fedtide.records.run_directory import RunDirectory
from fedtide.records.summary import Summary
from fedtide.runs.compare import compare
from fedtide.runs.display.progress import UNWATCHED, Watch
from fedtide.runs.open_run import run_key
from fedtide.runs.workspace import Workspace
from fedtide.settings.run import RunSettings
from fedtide.settings.scores import Score
from fedtide.studies.reproduce.curves import curves, curves_csv, curves_png
from fedtide.studies.reproduce.earlier import read_earlier
from fedtide.studies.reproduce.history import History
from fedtide.studies.reproduce.recipe import Cell, Recipe
from fedtide.studies.reproduce.results import Results, csv_text, markdown, tabulate
from fedtide.world.dataset import Dataset
from fedtide.world.storage.prepared import load_data

EXPERIMENTS = Path("experiments")
"""Folder of the user's experiments, below the current one: ``experiments/<family>/<name>.yaml``."""

PUBLISHED = SHIPPED / "experiments"
"""Folder of those that come with the package."""


def experiments(root: Path | None = None) -> dict[str, Path]:
    """Files of all experiments by name, which is the file's stem; by default the user's, without any the package's.

    Raises:
        SettingsError: two families have an experiment of the same name.
    """
    if root is None:
        return experiments(EXPERIMENTS) or experiments(PUBLISHED)
    found: dict[str, Path] = {}
    for path in sorted(root.glob("*/*.yaml")):
        if path.stem in found:
            raise SettingsError(f"{found[path.stem]} and {path} have the same name; rename one of them")
        found[path.stem] = path
    return found


def find(name: str) -> Path:
    """The file of the experiment ``<name>`` or ``<family>/<name>``, the user's before the package's.

    Raises:
        SettingsError: there is no such experiment; the message names the nearest.
    """
    known = experiments(PUBLISHED) | (own := experiments(EXPERIMENTS))
    named = known | {f"{path.parent.name}/{stem}": path for stem, path in known.items()}
    if name not in named:
        raise SettingsError(nearest(f"unknown experiment {name!r}", name.rpartition("/")[2], own or known))
    return named[name]


class _RunStore:
    """The runs of a recipe in a folder; histories are read once."""

    def __init__(self, root: Path, score: Score) -> None:
        self.root, self._score = root, score
        self._data: dict[PluginSettings, Dataset] = {}
        self._keys: dict[int, str] = {}
        self._histories: dict[str, History] = {}

    def key(self, settings: RunSettings) -> str:
        """Run key, cached by identity: a recipe resolves every run once."""
        if id(settings) not in self._keys:
            if settings.data not in self._data:
                self._data[settings.data] = load_data(settings)
            self._keys[id(settings)] = run_key(settings, self._data[settings.data])
        return self._keys[id(settings)]

    def history(self, settings: RunSettings) -> History | None:
        """History of a complete run that :meth:`load` has read."""
        return self._histories.get(self.key(settings))

    def load(self, key: str, keep_states: bool = True) -> bool:
        """Read the history of a run if it is complete and nothing of it is missing; whether it is.

        ``keep_states`` as in :meth:`fedtide.records.run_directory.RunDirectory.finished`.
        """
        directory = RunDirectory(self.root / key)
        if key not in self._histories and (directory.finished(key, keep_states) or {}).get("state") == "complete":
            self._histories[key] = History(directory.path, self._score)
        return key in self._histories


def reproduce(
    recipe: Recipe,
    only: Iterable[str],
    runs: Path,
    out: Path,
    command: str,
    watch: Watch = UNWATCHED,
) -> tuple[Results, list[Summary], int | None]:
    """Execute the missing runs and write ``<out>/<name>/<profile>.csv`` and ``.md``, again after every run.

    Tables about whole runs also get ``<profile>_rounds.csv`` and ``.png``, the runs' curves. The files always cover all
    cells of the experiment, whichever are run; numbers of cells whose runs are not in ``runs`` are kept.

    Args:
        recipe: the experiment under one profile.
        only: filters of the cells to run; see :meth:`Recipe.select`.
        runs: folder of run directories.
        out: folder of results.
        command: what the user typed, for the files.
        watch: gets one line per finished run, and shows the runs in progress.

    Returns:
        The results, and summaries of the runs and the signal as :func:`fedtide.runs.compare.compare`.

    Raises:
        SettingsError: bad input; nothing was trained.
    """
    chosen = recipe.select(only)
    target = folder(out / recipe.name)
    earlier = read_earlier(recipe, target / f"{recipe.profile}.csv", target / f"{recipe.profile}_rounds.csv")
    store = _RunStore(folder(runs), recipe.score)
    complete = {
        id(settings): store.load(store.key(settings), settings.checkpoint.keep_finished)
        for settings in distinct_runs(recipe, recipe.cells, recipe.seeds)
    }
    missing = [settings for settings in distinct_runs(recipe, chosen, recipe.seeds) if not complete[id(settings)]]

    def write() -> Results:
        results = tabulate(recipe, store.history, earlier)
        lines = curves(
            recipe, store.history, {cell: earlier.lines[cell] for cell in results.kept if cell in earlier.lines}
        )
        files, page = {".csv": csv_text(results).encode()}, markdown(results, command)
        if lines:
            files |= {"_rounds.csv": curves_csv(lines, recipe).encode(), "_rounds.png": curves_png(lines, recipe)}
            shown = any((cell, recipe.score.name) in recipe.published for cell in lines)
            marks = "; diamonds: published values" if shown else ""
            page += f"\n![Test {recipe.score.words} over rounds{marks}]({recipe.profile}_rounds.png)\n"
        files[".md"] = page.encode()
        for suffix, content in files.items():
            write_bytes(target / f"{recipe.profile}{suffix}", content)
        return results

    def ended(summary: Summary) -> None:
        if store.load(summary["run_key"]):
            write()

    write()
    summaries: list[Summary] = []
    stopped = None
    if missing:
        workspace = Workspace(store.root, experiment=recipe.name, comparison=recipe.profile, loggers=recipe.loggers)
        summaries, stopped = compare(missing, workspace, recipe.compare, watch, ended)
    return write(), summaries, stopped


def distinct_runs(recipe: Recipe, cells: Sequence[Cell], seeds: Sequence[int]) -> list[RunSettings]:
    """Settings of the runs of some cells, without duplicates; all seeds of a cell together."""
    found = {id(settings): settings for cell in cells for seed in seeds for settings in recipe.runs(cell, seed)}
    return list(found.values())


def count_runs(recipe: Recipe) -> int:
    """Number of runs of an experiment: as many of every seed."""
    return len(distinct_runs(recipe, recipe.cells, recipe.seeds[:1])) * len(recipe.seeds)
