"""What ends a trial early, and what ends a search early: Optuna's pruners and terminators."""

from __future__ import annotations

import warnings
from typing import Any

from fedtide.core.randomness import generator
from fedtide.settings.search import (
    HyperbandPruner,
    MedianPruner,
    NoPruner,
    NoTerminator,
    RegretTerminator,
    StagnationTerminator,
)


def pruner(chosen: MedianPruner | HyperbandPruner | NoPruner, rounds: int) -> Any:
    """Optuna's pruner for trials of ``rounds`` rounds."""
    from optuna import pruners

    if isinstance(chosen, MedianPruner):
        return pruners.MedianPruner(chosen.startup, n_warmup_steps=int(chosen.warmup * rounds))
    if isinstance(chosen, HyperbandPruner):
        return pruners.HyperbandPruner(min(chosen.rounds, rounds), rounds, chosen.reduction)
    return pruners.NopPruner()


def promises_little(study: Any, chosen: NoTerminator | StagnationTerminator | RegretTerminator, seed: int) -> bool:
    """Whether a terminator ends the search after the study's trials; the answer depends on these alone.

    ``regret`` (Makarova et al. 2022) compares a bound on the regret, from a Gaussian process, with the error of the best
    trial's value: a given one, or the corrected standard deviation of the values of its seeds (see :func:`report_seeds`).
    """
    if isinstance(chosen, NoTerminator):
        return False
    from optuna import terminator

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # all are experimental, and the module moves out of Optuna 6
        if isinstance(chosen, StagnationTerminator):
            # Ends when the trials left fall below the error, so one is left when they are used up.
            stagnation = terminator.BestValueStagnationEvaluator(max_stagnation_trials=chosen.trials)
            judge = terminator.Terminator(stagnation, terminator.StaticErrorEvaluator(1), min_n_trials=1)
        else:
            key = int(generator(seed, "search.terminator").integers(2**31))
            regret = terminator.RegretBoundEvaluator(min_n_trials=chosen.trials, seed=key)
            given = None if chosen.error is None else terminator.StaticErrorEvaluator(chosen.error)
            error = given or terminator.CrossValidationErrorEvaluator()
            judge = terminator.Terminator(regret, error, min_n_trials=chosen.trials)
        return bool(judge.should_terminate(study))


def report_seeds(trial: Any, values: tuple[float, ...]) -> None:
    """Keep the values of a trial's seeds, two or more, for the terminator ``regret``."""
    from optuna.terminator import report_cross_validation_scores

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report_cross_validation_scores(trial, list(values))
