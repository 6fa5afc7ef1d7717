"""Optuna's samplers and pruners by the names of the settings, with Optuna's own arguments."""

import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from fedtide.core.errors import SettingsError, nearest
from fedtide.settings.groups.tuning import Pruner, Sampler

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
