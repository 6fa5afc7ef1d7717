"""The table of gradient-boosted trees beside the methods, from the file that ``fedtide trees`` writes."""

from dataclasses import replace
from pathlib import Path

import pandas as pd

from fedtide.core.errors import SettingsError, shortened
from fedtide.records.measures import metrics, statistics
from fedtide.records.run_directory import read_json
from fedtide.report import findings
from fedtide.report.formats import NOTHING
from fedtide.report.parts import Source, sheets
from fedtide.report.tables.method_table import Sheet

_WORLD = ["seed", "data", "timeline"]
_CAPTION = (
    "Mean ± sample standard deviation over the seeds that have both. At the end of every session pooled_trees are fitted on "
    "all rows that clients have held so far, local_trees on those of one client each; they are not tuned. Intervals of the "
    "paired differences are not corrected for the number of methods."
)
_SAME_ROWS = " Seeds share most of their test rows, so variation over seeds does not measure variation over periods."


def sheets_of(source: Source) -> list[Sheet]:
    """The table; none without ``report.trees`` and a complete run.

    Raises:
        SettingsError: the file is not one of ``fedtide trees``, lacks the report's score, or belongs to other runs.
    """
    score, scale, file = source.records.score, source.table.scale, source.contents.settings.trees
    if file is None:
        return []
    trees = _trees(Path(file), source)
    values = _methods(source).join(trees, how="inner")
    if values[list(trees)].isna().all(axis=None):
        return []
    reference = (score.sign * values[list(trees)].mean()).idxmax()
    gaps, rows = statistics.compare(values, reference).to_dict("index"), []
    for name in values:
        cells = [str(values[name].count()), scale.value(*metrics.mean_std(values[name])), NOTHING, NOTHING]
        if gap := gaps.get(name):
            difference, *ends = (scale.difference(gap[part]) for part in ("difference", "low", "high"))
            cells[2:] = [difference, " to ".join(ends) if NOTHING not in ends else "n/a"]
        rows.append(((str(name),), cells))
    over = "periods" if score.ahead else "session ends"
    headings = ["Seeds", scale.heading(f"{score.title}, mean over the {over}")]
    headings += [f"Difference from {reference}{scale.gap}", "95 % interval"]
    return [Sheet("Gradient-boosted trees", _CAPTION + _SAME_ROWS * score.ahead, headings, rows, ("Method",))]


def _methods(source: Source) -> pd.DataFrame:
    """The score of each complete run: a row per seed, a column per method."""
    records, table, key = source.records, source.table, source.records.score.mean_next
    if not records.score.ahead:
        runs = records.history.groupby("key")
        ends = {name: metrics.mean(metrics.at_period_ends(run[records.column], run["session"])) for name, run in runs}
        table = replace(table, runs=table.runs.assign(**{key: table.runs["key"].map(ends)}))
    found = table.by_seed(key)
    return found.set_axis([findings.method(names) for names in found.columns.to_numpy()], axis=1)


def _trees(file: Path, source: Source) -> pd.DataFrame:
    """The score of each baseline, mean over the sessions that the runs have: a row per seed, a column per baseline."""
    history, score = source.records.history, source.records.score
    manifests = [facts for path in source.run_dirs if (facts := read_json(path / "manifest.json")) is not None]
    worlds, column = {tuple(facts.get(name) for name in _WORLD) for facts in manifests}, f"test_{score.of_global.name}"
    try:
        frame = pd.read_csv(file, dtype={"baseline": str, "data": str, "timeline": str})
        if missing := [name for name in ("baseline", "session", *_WORLD, column) if name not in frame]:
            raise ValueError(f"no column {missing[0]!r}")
        frame = frame.astype({"seed": int, "session": int, column: float})
        wide = frame.pivot(index=["seed", "session"], columns="baseline", values=column)
        shared = frame[frame["seed"].isin([seed for seed, *_ in worlds])]
        # One run of a seed is enough: `pooled` holds other rows by definition, so it has a timeline of its own.
        if shared.empty or {*shared[_WORLD].itertuples(index=False, name=None)} - worlds:
            raise ValueError("it has other seeds, data or timelines than the runs")
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or shortened(str(error))
        raise SettingsError(
            f"report.trees = {file}: {problem}; run `fedtide trees` with the settings of the runs"
        ) from None
    last = history.loc[history["state"] == "complete", "session"].max() - score.ahead
    return pd.DataFrame(wide[wide.index.get_level_values("session") <= last].groupby("seed").mean())


sheets.add(15, sheets_of)
