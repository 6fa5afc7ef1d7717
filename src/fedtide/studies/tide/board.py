"""The board: the methods on it, and their ranks and gains over the worlds, with intervals over seeds."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from fedtide.core.array_types import Floats
from fedtide.core.errors import SettingsError
from fedtide.core.randomness import generator
from fedtide.studies.tide.scores import Row
from fedtide.studies.tide.suite import REFERENCE, World
from fedtide.studies.tide.verify import methods_in, verify

PUBLISHED = "scores.csv"
"""Rows of the published methods, in the folder of a suite."""

NO_RUNS = "no runs"
"""In a world that refuses a method, or where all trials of its search diverged."""

RESAMPLES = 2000
"""Resamples of the seeds, the same ones for all methods."""

_TRIMMED = 0.25  # at each end: the mean of the rest is the interquartile mean
_INTERVAL = (2.5, 97.5)  # percentiles of the resamples


@dataclass(frozen=True)
class Board:
    """What is known of the methods.

    Attributes:
        methods: one row per method, the best first: ``rank`` (mean over the worlds of the rank of its mean score), ``gain``
            (interquartile mean over the worlds of the mean difference from the reference, in points), ``better`` (mean over the
            worlds of the share of seeds on which it is better than the reference, ties half), each with ``_low`` and ``_high``;
            ``bytes`` and ``gradients`` (mean over the worlds that it runs in, as multiples of the reference's).
        scores, gains: a row per method, a column per world: mean score, and its difference from the reference's, in percent and
            points. A world without runs, and a run that diverged, score 0.
        spread: standard deviation of the scores over the seeds, in points. seeds: of every world. failed: runs that diverged,
            and worlds without any (:data:`NO_RUNS`), by method and world, in words.
    """

    methods: pd.DataFrame
    scores: pd.DataFrame
    gains: pd.DataFrame
    spread: pd.DataFrame
    seeds: Mapping[str, int]
    failed: Mapping[tuple[str, str], str]

    @property
    def worlds(self) -> list[str]:
        return list(self.seeds)


def board(rows: pd.DataFrame, worlds: Sequence[World]) -> Board:
    """The board of runs.

    Intervals are percentiles of a bootstrap that resamples the seeds of every world, jointly for all methods, since a seed
    fixes world, initial model and cohorts of all (after Agarwal et al. 2021, Deep reinforcement learning at the edge of the
    statistical precipice, with worlds in the place of tasks). They hold for these worlds, which are not a sample of others.

    Args:
        rows: columns of :class:`fedtide.studies.tide.scores.Row`.

    Raises:
        SettingsError: the reference has not all runs.
    """
    methods = sorted(rows["method"].unique())
    if REFERENCE not in methods:
        raise SettingsError(f"the leaderboard compares with {REFERENCE}, which has no runs in this folder")
    cubes = {world.name: _cube(rows, world, methods) for world in worlds}
    draws: list[Floats] = []  # scores of resampled seeds: [seeds, resamples, methods]
    for place, cube in enumerate(cubes.values()):
        drawn = generator(0, "board", place).integers(0, len(cube), (len(cube), RESAMPLES))
        draws.append(np.asarray(cube.to_numpy()[drawn], dtype=np.float64))
    reference = methods.index(REFERENCE)
    table = pd.DataFrame(index=pd.Index(methods, name="method"))
    for name, quantity in (("rank", _rank), ("gain", _gain), ("better", _better)):
        table[name] = quantity([cube.to_numpy(np.float64)[:, None] for cube in cubes.values()], reference)[0]
        table[f"{name}_low"], table[f"{name}_high"] = np.percentile(quantity(draws, reference), _INTERVAL, axis=0)
    table[["gain", "gain_low", "gain_high"]] *= 100
    for cost in ("bytes", "gradients"):
        mean = rows.pivot_table(index="method", columns="world", values=cost, aggfunc="mean")
        table[cost] = (mean / mean.loc[REFERENCE]).mean(axis=1)
    order = table.sort_values(["rank", "gain"], ascending=[True, False]).index
    means = 100 * pd.DataFrame({name: cube.mean() for name, cube in cubes.items()}).loc[order]
    return Board(
        table.loc[order],
        means,
        means - means.loc[REFERENCE],
        100 * pd.DataFrame({name: cube.std() for name, cube in cubes.items()}).loc[order],
        {name: len(cube) for name, cube in cubes.items()},
        _failed(rows, cubes),
    )


def _cube(rows: pd.DataFrame, world: World, methods: list[str]) -> pd.DataFrame:
    """Scores in a world: a row per seed, a column per method."""
    here = rows[rows["world"] == world.name]
    seeds = list(world.params.experiment.compare.seeds)
    cube = here.pivot_table(index="seed", columns="method", values="score").reindex(index=seeds, columns=methods)
    partly = [name for name in methods if cube[name].isna().any() and not cube[name].isna().all()]
    if partly or cube[REFERENCE].isna().any():
        name = (partly or [REFERENCE])[0]
        missing = ", ".join(str(seed) for seed, lacks in zip(seeds, cube[name].isna(), strict=True) if lacks)
        raise SettingsError(f"world {world.name}: method {name} is missing seeds {missing}")
    return cube.fillna(0.0)


def _rank(draws: Sequence[Floats], _: int) -> Floats:
    """From scores [seeds, resamples, methods] of every world: mean rank [resamples, methods]."""
    ranks = [stats.rankdata(-scores.mean(axis=0).round(12), axis=-1) for scores in draws]
    return np.asarray(np.mean(ranks, axis=0))


def _gain(draws: Sequence[Floats], reference: int) -> Floats:
    gains = [scores.mean(axis=0) - scores.mean(axis=0)[:, [reference]] for scores in draws]
    return np.asarray(stats.trim_mean(np.stack(gains), _TRIMMED, axis=0))


def _better(draws: Sequence[Floats], reference: int) -> Floats:
    shares = []
    for scores in draws:
        other = scores[:, :, [reference]]
        shares.append(((scores > other) + 0.5 * (scores == other)).mean(axis=0))
    return np.asarray(np.mean(shares, axis=0))


def _failed(rows: pd.DataFrame, cubes: Mapping[str, pd.DataFrame]) -> dict[tuple[str, str], str]:
    diverged = Counter(zip(*(rows[rows["state"] == "diverged"][key] for key in ("method", "world")), strict=True))
    there = set(zip(rows["method"], rows["world"], strict=True))
    methods = sorted(rows["method"].unique())
    none = {(method, world): NO_RUNS for world in cubes for method in methods if (method, world) not in there}
    return none | {key: f"{count} diverged" for key, count in diverged.items()}


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
        rows = pd.concat([listed, rows], ignore_index=True)
    if rows.empty:
        raise SettingsError("no runs for the leaderboard; give a folder of methods")
    return rows.astype({"seed": int, "score": float, "bytes": int, "gradients": float, "seconds": float})


def read_rows(path: Path) -> pd.DataFrame:
    """Rows that a board has written; a SettingsError if the file is not one."""
    if not path.is_file():
        raise SettingsError(f"no methods are published with this suite ({PUBLISHED}); use --alone")
    try:
        rows = pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path}: {error}") from None
    if list(rows) != list(Row._fields) or rows.duplicated(["method", "world", "seed"]).any():
        raise SettingsError(f"{path}: should have the columns {', '.join(Row._fields)}, and every run once")
    return rows
