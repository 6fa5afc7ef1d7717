"""What counts of a run: its score, and what it has cost."""

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from fedtide.records.run_directory import RunDirectory
from fedtide.studies.tide.suite import World
from fedtide.studies.tuning.trial import measured, scored_rounds
from fedtide.studies.tuning.trial import score as mean_over
from fedtide.world.timeline import Timeline

LAST = 3
"""Evaluations that are averaged before a budget of simulated seconds is spent."""


class Row(NamedTuple):
    """A run on the board.

    ``score`` is in [0, 1], higher is better; 0 of a run that diverged. ``bytes``: both directions. ``gradients``: of batches,
    over all participants. ``seconds``: simulated, NaN where nothing is.
    """

    method: str
    world: str
    seed: int
    state: str
    score: float
    bytes: int
    gradients: float
    seconds: float


def row(method: str, world: World, seed: int, directory: RunDirectory, timeline: Timeline) -> Row:
    """The row of a run that has ended."""
    summary, history = directory.summary() or {}, directory.history()
    state = str(summary.get("state", "unfinished"))
    value = score(world, history, timeline) if state == "complete" else 0.0
    spent = gradients(history, world.params.run().local.amount)
    traffic = int(summary.get("bytes_up", 0)) + int(summary.get("bytes_down", 0))
    return Row(method, world.name, seed, state, value, traffic, spent, (_elapsed(history) or [math.nan])[-1])


def score(world: World, history: Sequence[Mapping[str, str]], timeline: Timeline) -> float:
    """Mean of the world's metric on test samples over its rounds; of the last evaluations in time, if seconds are limited."""
    params = world.params
    tune = params.experiment.tune
    metric = tune.metric.replace("validation_", "test_", 1)
    if world.limits.seconds is None:
        rounds = scored_rounds(timeline, tune, params.run().evaluation)
    else:
        evaluated = [line for line in history if measured(line, metric)]
        elapsed = dict(zip((line["round"] for line in history), _elapsed(history), strict=True))
        rounds = tuple(int(line["round"]) for line in evaluated if elapsed[line["round"]] <= world.limits.seconds)[
            -LAST:
        ]
    return mean_over(history, metric, rounds) or 0.0


def gradients(history: Sequence[Mapping[str, str]], amount: int) -> float:
    """Gradients of batches that all participants have computed; ``amount``: of one whose every step takes one."""
    return math.fsum(float(line["completed"]) * float(line.get("gradients") or amount) for line in history)


def _elapsed(history: Sequence[Mapping[str, str]]) -> list[float]:
    """Simulated seconds at the end of each round, NaN where nothing is simulated."""
    return list(accumulate(float(line.get("latency", math.nan)) for line in history))
