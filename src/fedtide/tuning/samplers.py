"""What proposes the settings of trials: Optuna's samplers, each trial with a key of its own."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedtide.core import extras
from fedtide.core.errors import SettingsError
from fedtide.core.randomness import generator
from fedtide.settings.search import CmaesSampler, GpSampler, GridSampler, TpeSampler
from fedtide.settings.tuning import TuneSettings, Value
from fedtide.tuning.space import Choice, Dimension

_PACKAGES = {"cmaes": "cmaes"}  # what a sampler needs beyond fedtide's dependencies


class Proposals:
    """Makes the sampler of each trial.

    The sampler of a trial depends on the seed of the search and the number of the trial alone, and what it proposes on the
    trials that have ended, so that interruptions have no effect.

    Args:
        options: of the search. dimensions: what is varied.

    Attributes:
        most: number of different trials, ``None`` if there is no limit.

    Raises:
        SettingsError: the sampler needs a package that is not installed, or cannot search this space.
    """

    def __init__(self, options: TuneSettings, dimensions: Sequence[Dimension | Choice]) -> None:
        self._options, self._sampler = options, options.sampler
        _refuse(self._sampler.name, dimensions)
        # The order of settings in the file must not matter.
        self._dimensions = sorted(dimensions, key=lambda dimension: dimension.key)
        self._grid = self._points() if isinstance(self._sampler, GridSampler) else None
        self.most = None if self._grid is None else len(self._grid)

    @property
    def distributions(self) -> dict[str, Any]:
        return {dimension.key: _distribution(dimension) for dimension in self._dimensions}

    def sampler(self, number: int) -> Any:
        from optuna import samplers

        seed, chosen = int(generator(self._options.seed, "search", number).integers(2**31)), self._sampler
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some are experimental
            if isinstance(chosen, TpeSampler):
                return samplers.TPESampler(
                    seed=seed, n_startup_trials=chosen.startup, n_ei_candidates=chosen.candidates
                )
            if isinstance(chosen, GpSampler):
                return samplers.GPSampler(seed=seed, n_startup_trials=chosen.startup)
            if isinstance(chosen, CmaesSampler):
                return samplers.CmaEsSampler(
                    seed=seed, n_startup_trials=chosen.startup, popsize=chosen.population, sigma0=chosen.sigma
                )
            if self._grid is not None:
                return samplers.PartialFixedSampler(self._grid[number], samplers.RandomSampler(seed))
            return samplers.RandomSampler(seed)

    def _points(self) -> list[dict[str, Value]]:
        """All combinations, shuffled so that the first ones already cover the space."""
        assert isinstance(self._sampler, GridSampler)
        values = [_values(dimension, self._sampler.points) for dimension in self._dimensions]
        keys = [dimension.key for dimension in self._dimensions]
        points = [dict(zip(keys, combination, strict=True)) for combination in itertools.product(*values)]
        order = generator(self._options.seed, "search.grid").permutation(len(points))
        return [points[place] for place in order]


def _refuse(name: str, dimensions: Sequence[Dimension | Choice]) -> None:
    """Refuse a sampler whose package is missing, or that cannot search the space."""
    package = _PACKAGES.get(name)
    if package is not None:
        extras.require("tuning", f"tune.sampler = {name}", package)
    if name == "cmaes":
        if choices := [dimension.key for dimension in dimensions if isinstance(dimension, Choice)]:
            raise SettingsError(f"tune.sampler = cmaes: {choices[0]} has choices, but it searches ranges only")
        if len(dimensions) < 2:
            raise SettingsError("tune.sampler = cmaes: it needs ranges of two settings or more; choose tpe or gp")


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


def facts(options: TuneSettings, rounds: Mapping[int, tuple[int, ...]]) -> dict[str, Any]:
    """What of sampler, pruner and seeds makes another study, JSON-able; ``rounds``: that are scored, by seed of the runs."""
    chosen = {"sampler": options.sampler, **({"pruner": options.pruner} if options.prunes else {})}
    found: dict[str, Any] = {name: value.model_dump(mode="json") for name, value in chosen.items()}
    return found | {"seeds": [options.seed, *rounds.items()]}
