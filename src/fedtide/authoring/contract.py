"""The contract of every plug-in, each requirement as a test of a :class:`fedtide.authoring.trial.Trial`.

A plug-in's own test file runs them with pytest, ``fedtide test NAME`` without.
"""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedtide.authoring.rounds import (
    ContractBroken,
    assert_repeats,
    assert_same_on_any_engine,
    begin,
    run_rounds,
    tensors,
    with_engine,
)
from fedtide.authoring.trial import Trial
from fedtide.core import plugins
from fedtide.core.discovery.faults import PluginCrash, describe_fault
from fedtide.core.errors import Diverged, SettingsError
from fedtide.core.plugins import naming_plugins
from fedtide.methods.algorithms.base import Algorithm, Round
from fedtide.settings.params import parse

_PACKAGE = Path(__file__).parents[1]


def is_documented(trial: Trial) -> None:
    """It has a summary of one sentence, every setting a description and a valid default, every search valid bounds."""
    plugin, summary = trial.plugin, plugins.summary(trial.kind, trial.name)
    if not ("__doc__" in vars(plugin) and 0 < len(summary) < 120 and summary.endswith(".")):
        raise ContractBroken(f"its docstring should begin with one sentence of at most 118 letters, got {summary!r}")
    defaults = settings_of(trial)
    if type(defaults) is not plugin.Settings or settings_of(trial, **defaults.model_dump(mode="json")) != defaults:
        raise ContractBroken("its settings change when they are written and read again")
    plugin(defaults)
    for key, field in plugin.Settings.model_fields.items():
        if key != "name" and not field.description:
            raise ContractBroken(f"the setting {key} has no description")
        extra = field.json_schema_extra
        if (tune := extra.get("tune") if isinstance(extra, dict) else None) is not None:
            if not (tune["low"] < tune["high"] and (tune["low"] > 0 or not tune["log"])):
                raise ContractBroken(f"{key} is searched from {tune['low']} to {tune['high']}, which is not a range")
            if not tune["low"] <= field.default <= tune["high"]:
                raise ContractBroken(f"{key} = {field.default}, its default, is outside its search range")
            for bound in ("low", "high"):
                if getattr(settings_of(trial, **{key: tune[bound]}), key) != tune[bound]:
                    raise ContractBroken(
                        f"{key} = {tune[bound]}, a bound of its search range, is read as another value"
                    )


def refuses_bad_settings(trial: Trial) -> None:
    """An unknown setting, and a value beyond a bound, are refused in one line that names it."""
    for key, value in [("no_such_setting", 1), *_out_of_bounds(trial.plugin.Settings)]:
        try:
            settings_of(trial, **{key: value})
        except SettingsError as error:
            if key not in str(error) or "\n" in str(error):
                raise ContractBroken(
                    f"{key} = {value} should be rejected in one line that names it, got {error}"
                ) from None
        else:
            raise ContractBroken(f"{key} = {value} is not rejected")


def trains(trial: Trial) -> None:
    """It trains, all that a run carries on stays finite, and the weights of an algorithm are those of an average."""
    _, (state, _) = trial.whole
    for name, value in tensors(state).items():
        if value.is_floating_point() and not torch.isfinite(value).all():
            raise ContractBroken(f"{name} is not finite after {state.round} rounds")
    if trial.kind == "algorithms" and trial.plugin.weights is not Algorithm.weights:
        _averages(trial)


def _averages(trial: Trial) -> None:
    """Weights that an algorithm changes are nonnegative and sum to 1, as the trial's weighting does."""
    fed = begin(with_engine(trial.run()))
    algorithm, returned = fed.parts.algorithm, list[Tensor]()

    def weights(r: Round) -> Tensor:
        returned.append(type(algorithm).weights(algorithm, r))
        return returned[-1]

    vars(algorithm)["weights"] = weights
    run_rounds(fed)
    for each in returned:
        if bool((each < 0).any()) or not math.isclose(float(each.sum()), 1, abs_tol=1e-6):
            raise ContractBroken(
                f"weights should be nonnegative with sum 1, got {float(each.min()):g} as the least and {float(each.sum()):g} "
                "as the sum"
            )


def repeats(trial: Trial) -> None:
    """Built and executed twice, it gives the same bits; so it draws from keyed generators alone."""
    _, whole = trial.whole
    assert_repeats(whole, run_rounds(begin(with_engine(trial.run()))))


def resumes_on_any_engine(trial: Trial) -> None:
    """Stopped and resumed, with several workers, it gives the same bits; the stacked executor the same numbers."""
    assert_same_on_any_engine(*trial.whole)


CONTRACT: dict[str, Callable[[Trial], None]] = {
    "is documented": is_documented,
    "rejects invalid settings": refuses_bad_settings,
    "trains": trains,
    "repeats": repeats,
    "resumes, on any engine": resumes_on_any_engine,
}


def verdicts(trial: Trial) -> Iterator[tuple[str, str | None]]:
    """Every requirement, and in one line why it is not met, or ``None``; none after a plug-in that does not train."""
    for requirement, test in CONTRACT.items():
        try:
            with naming_plugins():
                test(trial)
        except (ContractBroken, Diverged, SettingsError, PluginCrash) as error:
            problem: str | None = str(error)
        except (ImportError, OSError):
            raise
        except Exception as error:  # not in the plug-in's file, such as for a declaration of the wrong type
            problem = f"the run fails at {describe_fault(error, [_PACKAGE], _PACKAGE)}"
        else:
            problem = None
        yield requirement, problem
        if problem and test is trains:
            return


def settings_of(trial: Trial, **values: Any) -> Any:
    """The plug-in's settings, as they are read from a file."""
    return parse(trial.plugin.Settings, {**trial.given, **values}, trial.kind)


def _out_of_bounds(settings: Any) -> Iterator[tuple[str, Any]]:
    """Settings and a value beyond each of their bounds, written with the field."""
    for key, field in settings.model_fields.items():
        for item in field.metadata:
            for name, step in (("gt", 0), ("ge", -1), ("lt", 0), ("le", 1)):
                bound = getattr(item, name, None)
                if isinstance(bound, int | float):
                    yield key, bound + step
