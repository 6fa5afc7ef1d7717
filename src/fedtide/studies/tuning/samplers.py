"""Optuna's samplers, each trial with a key of its own, and pruners: by the names of the settings, with Optuna's arguments."""

import inspect
import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from fedtide.core import extras
from fedtide.core.errors import SettingsError, nearest
from fedtide.core.randomness import generator
from fedtide.settings.groups.tuning import Pruner, Sampler, TuneSettings, Value
from fedtide.studies.tuning.space import Choice, Dimension

SAMPLERS = {"tpe": "TPESampler", "gp": "GPSampler", "cmaes": "CmaEsSampler", "random": "RandomSampler"}
PRUNERS = {
    "median": "MedianPruner",
    "percentile": "PercentilePruner",
    "halving": "SuccessiveHalvingPruner",
    "hyperband": "HyperbandPruner",
    "threshold": "ThresholdPruner",
    "wilcoxon": "WilcoxonPruner",
    "none": "NopPruner",
}


@contextmanager
def quietly() -> Iterator[None]:
    """Without warnings: much of what is used of Optuna counts as experimental."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def pruner(chosen: Pruner, rounds: int) -> partial[Any]:
    """What makes Optuna's pruner for trials of ``rounds`` rounds; a SettingsError if its arguments do not fit."""
    from optuna import pruners

    of_rounds = {
        "median": {"n_startup_trials": 4, "n_warmup_steps": rounds // 5},
        "hyperband": {"max_resource": rounds},
    }
    found = made("tune.pruner", chosen, getattr(pruners, PRUNERS[chosen.name]), of_rounds.get(chosen.name, {}))
    if chosen.name == "hyperband" and (first := found.keywords.get("min_resource", 1)) > rounds:
        raise SettingsError(
            f"tune.pruner = hyperband: min_resource = {first} is more than the {rounds} rounds of a run"
        )
    return found


@quietly()
def made(key: str, chosen: Sampler | Pruner, make: Callable[..., Any], defaults: dict[str, Any]) -> partial[Any]:
    """``make`` with the arguments that are given under a key of the settings, and other ``defaults`` than its own.

    Arguments that equal its own defaults are left out, so that it does not matter whether they are given.

    Raises:
        SettingsError: it has no such argument, or does not take the value.
    """
    what, given = f"{key} = {chosen.name}", chosen.model_extra or {}
    parameters = {name: item for name, item in inspect.signature(make).parameters.items() if name != "seed"}
    for name in given:
        if name not in parameters:
            raise SettingsError(nearest(f"{what} has no argument {name!r}", name, parameters))
    found = {name: value for name, value in {**defaults, **given}.items() if value != parameters[name].default}
    try:
        make(**found)
    except (TypeError, ValueError) as error:
        raise SettingsError(f"{what}: {error}") from None
    return partial(make, **found)


class Proposals:
    """Makes the sampler of each trial.

    The sampler of a trial depends on the seed of the search and the number of the trial alone, and what it proposes on the
    trials that have ended, so that interruptions have no effect.

    Args:
        options: of the search. dimensions: what is varied.

    Attributes:
        most: number of different trials, ``None`` if there is no limit. arguments: of the sampler, where not at Optuna's
            defaults.

    Raises:
        SettingsError: the sampler needs a package that is not installed, does not take its arguments, or cannot search this
            space.
    """

    def __init__(self, options: TuneSettings, dimensions: Sequence[Dimension | Choice]) -> None:
        from optuna import samplers

        self._seed, name = options.seed, options.sampler.name
        # The order of settings in the file must not matter.
        self._dimensions = sorted(dimensions, key=lambda dimension: dimension.key)
        if name == "cmaes":
            self._refuse_cmaes()
        make = self._points if name == "grid" else getattr(samplers, SAMPLERS[name])
        self._make = made("tune.sampler", options.sampler, make, {})
        self.arguments: dict[str, Any] = self._make.keywords
        self._grid: list[dict[str, Value]] | None = self._make() if name == "grid" else None
        self.most = None if self._grid is None else len(self._grid)

    @property
    def distributions(self) -> dict[str, Any]:
        return {dimension.key: _distribution(dimension) for dimension in self._dimensions}

    @quietly()
    def sampler(self, number: int) -> Any:
        from optuna import samplers

        seed = int(generator(self._seed, "search", number).integers(2**31))
        if self._grid is not None:
            return samplers.PartialFixedSampler(self._grid[number], samplers.RandomSampler(seed))
        return self._make(seed=seed)

    def _points(self, points: int = 5) -> list[dict[str, Value]]:
        """All combinations, shuffled so that the first ones already cover the space."""
        if not 2 <= points <= 1000:
            raise ValueError(f"points = {points} should lie between 2 and 1000")
        values = [_values(dimension, points) for dimension in self._dimensions]
        keys = [dimension.key for dimension in self._dimensions]
        found = [dict(zip(keys, combination, strict=True)) for combination in itertools.product(*values)]
        order = generator(self._seed, "search.grid").permutation(len(found))
        return [found[place] for place in order]

    def _refuse_cmaes(self) -> None:
        """Refuse CMA-ES if its package is missing, or for a space in which Optuna would draw at random instead."""
        extras.require("tuning", "tune.sampler = cmaes", "cmaes")
        if choices := [dimension.key for dimension in self._dimensions if isinstance(dimension, Choice)]:
            raise SettingsError(f"tune.sampler = cmaes: {choices[0]} has choices, but it supports only ranges")
        if len(self._dimensions) < 2:
            raise SettingsError("tune.sampler = cmaes requires ranges of at least two settings; use tpe or gp")


def _values(dimension: Dimension | Choice, points: int) -> list[Value]:
    if isinstance(dimension, Choice):
        return list(dimension.limits)
    spaced = (np.geomspace if dimension.log else np.linspace)(dimension.low, dimension.high, points)
    if dimension.integer:
        return list(dict.fromkeys(round(value) for value in spaced.tolist()))
    return list(spaced.tolist())


def _distribution(dimension: Dimension | Choice) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(dimension, Choice):
        return CategoricalDistribution(dimension.limits)
    if dimension.integer:
        return IntDistribution(int(dimension.low), int(dimension.high), log=dimension.log)
    return FloatDistribution(dimension.low, dimension.high, log=dimension.log)
