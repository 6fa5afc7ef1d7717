"""What counts of a run: its score, and what it has cost."""

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from fedtide.records.run_directory import RunDirectory
from fedtide.settings.scores import score_of
from fedtide.studies.tide.suite import World
from fedtide.studies.tuning.trial import measured, scored_rounds
from fedtide.studies.tuning.trial import score as mean_over
from fedtide.world.timeline import Timeline

LAST = 3
"""Evaluations that are averaged before a budget of simulated seconds is spent."""

DIVERGED = "diverged"
"""State of a run that diverged, and of the seeds of a world in which all trials of the search did."""


class Row(NamedTuple):
    """A run on the board.

    ``score``: of the models that clients are served, in [0, 1], higher is better; the world's trivial one if it diverged.
    ``global_score``: of the global model in the same rounds, NaN without one. ``bytes``: both directions. ``gradients``: of
    batches, over all participants. ``seconds``: simulated, NaN where nothing is.
    """

    method: str
    world: str
    seed: int
    state: str
    score: float
    global_score: float
    bytes: int
    gradients: float
    seconds: float


def row(method: str, world: World, seed: int, directory: RunDirectory, timeline: Timeline) -> Row:
    """The row of a run that has ended."""
    summary, history = directory.summary() or {}, directory.history()
    state = str(summary.get("state", "unfinished"))
    served, of_global = scores(world, seed, history, timeline) if state == "complete" else (None, None)
    spent = gradients(history, world.params.run().local.amount)
    traffic = int(summary.get("bytes_up", 0)) + int(summary.get("bytes_down", 0))
    return Row(
        *(method, world.name, seed, state),
        world.limits.trivial if served is None else served,
        math.nan if of_global is None else of_global,
        *(traffic, spent, (_elapsed(history) or [math.nan])[-1]),
    )


def untrained(method: str, world: World) -> list[Row]:
    """Rows of a world in which all trials of the search diverged: there are no runs."""
    seeds = world.params.experiment.compare.seeds
    return [Row(method, world.name, seed, DIVERGED, world.limits.trivial, math.nan, 0, 0.0, math.nan) for seed in seeds]


def scores(
    world: World, seed: int, history: Sequence[Mapping[str, str]], timeline: Timeline
) -> tuple[float | None, float | None]:
    """Means over the world's rounds on test samples, of what clients are served and of the global model; None without any.

    Where seconds are limited, over the last evaluations before they are spent.
    """
    params = world.params
    tune, evaluation = params.experiment.tune, params.run().evaluation
    metric = tune.metric.replace("validation_", "test_", 1)
    main, ahead = (evaluation.metrics or ("accuracy",))[0], "_next" if score_of(tune.metric).ahead else ""
    if world.limits.seconds is None:
        rounds = scored_rounds(timeline, tune, evaluation)
    else:
        times = zip(history, _elapsed(history), strict=True)
        known = [(line, seconds) for line, seconds in times if measured(line, metric) is not None]
        in_time = [line for line, seconds in known if seconds <= world.limits.seconds[seed]]
        rounds = tuple(int(line["round"]) for line in in_time[-LAST:])
    return mean_over(history, metric, rounds), mean_over(history, f"test_{main}{ahead}", rounds)


def gradients(history: Sequence[Mapping[str, str]], amount: int) -> float:
    """Gradients of batches that all participants have computed; ``amount``: of one whose every step takes one."""
    return math.fsum(float(line["completed"]) * float(line.get("gradients") or amount) for line in history)


def _elapsed(history: Sequence[Mapping[str, str]]) -> list[float]:
    """Simulated seconds at the end of each round, NaN where nothing is simulated."""
    return list(accumulate(float(line.get("latency", math.nan)) for line in history))
