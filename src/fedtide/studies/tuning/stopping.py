"""What ends a search early: Optuna's terminators."""

from __future__ import annotations

from typing import Any

from fedtide.core.randomness import generator
from fedtide.settings.groups.tuning import NoTerminator, RegretTerminator, StagnationTerminator
from fedtide.studies.tuning.chosen import quietly


@quietly()
def promises_little(study: Any, chosen: NoTerminator | StagnationTerminator | RegretTerminator, seed: int) -> bool:
    """Whether a terminator ends the search after the study's trials; the answer depends on these alone.

    ``regret`` (Makarova et al. 2022) compares a bound on the regret, from a Gaussian process, with the error of the best
    trial's value: a given one, or the corrected standard deviation of the values of its seeds (see :func:`report_seeds`).
    """
    if isinstance(chosen, NoTerminator):
        return False
    from optuna import terminator  # the module moves out of Optuna 6

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


@quietly()
def report_seeds(trial: Any, values: tuple[float, ...]) -> None:
    """Keep the values of a trial's seeds, two or more, for the terminator ``regret``."""
    from optuna.terminator import report_cross_validation_scores

    report_cross_validation_scores(trial, list(values))
