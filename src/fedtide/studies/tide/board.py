"""The board: the methods on it, and their gains over the worlds, with intervals over seeds."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from fedtide.core.errors import SettingsError
from fedtide.studies.tide.scores import DIVERGED, Row
from fedtide.studies.tide.suite import REFERENCE, REFERENCE_LINES, World
from fedtide.studies.tide.verify import methods_in, verify

PUBLISHED = "scores.csv"
"""Rows of the published methods, in the folder of a suite."""


@dataclass(frozen=True)
class Board:
    """What is known of the methods. Tables have a row per method and a column per world; NaN where a method has no runs.

    Attributes:
        methods: one row per method, by ``mean``: the mean over the worlds of the gain over the reference, in points, with
            ``mean_low`` and ``mean_high``; ``median`` of the gains; ``worst`` and the ``worst_world`` that it is in; ``bytes``
            and ``gradients`` of its complete runs (mean over the worlds, as multiples of the reference's). A method that a
            world refuses has costs only, and is below the others; :data:`REFERENCE_LINES` are at the end (``line``).
        scores, global_scores: mean scores of served models and of the global model, in percent.
        spread: standard deviation of the scores over the seeds, in points.
        gains, low, high: mean difference from the reference, paired by seed, in points, with the ends of its 95 % t-interval.
        seeds: of every world. diverged: number of diverged runs by method and world, where there are some.
    """

    methods: pd.DataFrame
    scores: pd.DataFrame
    global_scores: pd.DataFrame
    spread: pd.DataFrame
    gains: pd.DataFrame
    low: pd.DataFrame
    high: pd.DataFrame
    seeds: Mapping[str, int]
    diverged: Mapping[tuple[str, str], int]

    @property
    def worlds(self) -> list[str]:
        return list(self.seeds)


def board(rows: pd.DataFrame, worlds: Sequence[World]) -> Board:
    """The board of runs.

    The interval of a mean over worlds is a t-interval of the variances over the seeds of each, with the degrees of freedom of
    Welch and Satterthwaite. Intervals hold for these worlds, which are not a sample of others.

    Args:
        rows: columns of :class:`fedtide.studies.tide.scores.Row`.

    Raises:
        SettingsError: the reference has not all runs, or a method has some of a world's.
    """
    methods = sorted(rows["method"].unique())
    if REFERENCE not in methods:
        raise SettingsError(f"the leaderboard compares with {REFERENCE}, which has no runs in this folder")
    cubes = {world.name: _cube(rows, world, methods) for world in worlds}
    paired = {name: cube.sub(cube[REFERENCE], axis=0) for name, cube in cubes.items()}
    gains = pd.DataFrame({name: pairs.mean() for name, pairs in paired.items()})
    half = pd.DataFrame({name: _half_width(pairs) for name, pairs in paired.items()})
    table = pd.DataFrame(index=pd.Index(methods, name="method"))
    table["line"] = table.index.isin(REFERENCE_LINES)
    table["mean"] = gains.mean(axis=1, skipna=False)
    of_mean = half_width_of_mean(paired)
    table["mean_low"], table["mean_high"] = table["mean"] - of_mean, table["mean"] + of_mean
    table["median"], table["worst"] = gains.median(axis=1, skipna=False), gains.min(axis=1, skipna=False)
    table["worst_world"] = gains.fillna(np.inf).idxmin(axis=1).where(table["worst"].notna(), "")
    for cost in ("bytes", "gradients"):
        mean = rows[rows["state"] != DIVERGED].pivot_table(index="method", columns="world", values=cost, aggfunc="mean")
        table[cost] = (mean / mean.loc[REFERENCE]).mean(axis=1)
    order = table.sort_values(["line", "mean"], ascending=[True, False], kind="stable").index
    of_global = rows.pivot_table(index="method", columns="world", values="global_score")
    diverged = rows[rows["state"] == DIVERGED]
    return Board(
        table.loc[order],
        pd.DataFrame({name: cube.mean() for name, cube in cubes.items()}).loc[order],
        100 * of_global.reindex(index=order, columns=list(cubes)),
        pd.DataFrame({name: cube.std() for name, cube in cubes.items()}).loc[order],
        gains.loc[order],
        (gains - half).loc[order],
        (gains + half).loc[order],
        {name: len(cube) for name, cube in cubes.items()},
        Counter(zip(diverged["method"], diverged["world"], strict=True)),
    )


def _cube(rows: pd.DataFrame, world: World, methods: list[str]) -> pd.DataFrame:
    """Scores in a world, in percent: a row per seed, a column per method, NaN for one that it refuses."""
    here = rows[rows["world"] == world.name]
    seeds = list(world.params.experiment.compare.seeds)
    cube = here.pivot_table(index="seed", columns="method", values="score").reindex(index=seeds, columns=methods)
    partly = [name for name in methods if cube[name].isna().any() and not cube[name].isna().all()]
    if partly or cube[REFERENCE].isna().any():
        name = (partly or [REFERENCE])[0]
        missing = ", ".join(str(seed) for seed, lacks in zip(seeds, cube[name].isna(), strict=True) if lacks)
        raise SettingsError(f"world {world.name}: method {name} is missing seeds {missing}")
    return 100 * cube


def _half_width(pairs: pd.DataFrame) -> pd.Series:
    """Half of the 95 % t-interval of the mean over the seeds, for every method."""
    return pairs.sem() * float(stats.t.ppf(0.975, len(pairs) - 1))


def half_width_of_mean(paired: Mapping[str, pd.DataFrame]) -> pd.Series:
    """The same of the mean over the worlds."""
    variances = pd.DataFrame({name: pairs.sem() ** 2 for name, pairs in paired.items()})
    freedom = pd.Series({name: len(pairs) - 1 for name, pairs in paired.items()})
    total = variances.sum(axis=1, skipna=False)
    known = total.where(total > 0)  # the reference's is 0
    quantile = stats.t.ppf(0.975, known**2 / (variances**2 / freedom).sum(axis=1))
    width: pd.Series = np.sqrt(known) * quantile / len(paired)
    return width.mask(total == 0, 0.0)


def entries(folder: Path | None, worlds: Sequence[World], suite: Path | None) -> pd.DataFrame:
    """Rows of the methods in a folder, and of those published with a suite, if one is given; columns as :class:`Row`.

    Raises:
        SettingsError: something in the folder does not verify, has the name of a published method, or there is nothing.
    """
    own = [verify(home, worlds) for home in methods_in(folder)] if folder is not None else []
    if problems := [line for each in own for line in each.problems]:
        more = f" (and {len(problems) - 1} more, see `fedtide tide verify {folder}`)" if len(problems) > 1 else ""
        raise SettingsError(f"{problems[0]}{more}")
    rows = pd.DataFrame([row for each in own for row in each.rows], columns=list(Row._fields))
    if suite is not None:
        listed = read_rows(suite / PUBLISHED)
        if taken := sorted({*listed["method"]} & {each.method for each in own}):
            raise SettingsError(
                f"{folder}: {taken[0]} is the name of a published method; rename the method, or use --alone"
            )
        rows = pd.concat([table for table in (listed, rows) if len(table)] or [rows], ignore_index=True)
    if rows.empty:
        raise SettingsError("no runs for the leaderboard; give a folder of methods")
    floats = dict.fromkeys(("score", "global_score", "gradients", "seconds"), float)
    return rows.astype({"seed": int, "bytes": int, **floats})


def read_rows(path: Path) -> pd.DataFrame:
    """Rows that a board has written, none if there is no such file; a SettingsError if the file is not one."""
    if not path.is_file():
        return pd.DataFrame(columns=list(Row._fields))
    try:
        rows = pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path}: {error}") from None
    if list(rows) != list(Row._fields) or rows.duplicated(["method", "world", "seed"]).any():
        raise SettingsError(f"{path}: should have the columns {', '.join(Row._fields)}, and every run once")
    return rows
