"""Which algorithms go with which mode and which local optimizer."""

from __future__ import annotations

from fedtide.core.discovery.faults import broken_contract
from fedtide.core.errors import SettingsError
from fedtide.federation.types import Chosen
from fedtide.methods.algorithms.base import ADMITS, NEEDS, Algorithm, overrides
from fedtide.settings.groups.local import Sgd
from fedtide.settings.run import Async, RunSettings
from fedtide.training.engine.plan import EPOCHS


def refuse_unknown_words(algorithm: Algorithm) -> None:
    """Refuse promises and needs of an algorithm that nobody would read."""
    for what, words, known in (("admits", algorithm.admits, ADMITS), ("needs", algorithm.needs, NEEDS)):
        if isinstance(words, str) or not known.keys() >= {*words}:
            raise broken_contract(algorithm, what, f"a sequence of words among {', '.join(known)}, got {words!r}")


def refuse_other_optimizer(settings: RunSettings, algorithm: Algorithm) -> None:
    """Refuse a local optimizer whose displacements an algorithm would take for sums of gradients."""
    chosen = settings.local.optimizer
    if algorithm.optimizer != "any" and not isinstance(chosen, Sgd):
        raise SettingsError(
            f"local.optimizer = {chosen.name}: the formulas of algorithm {settings.algorithm.name}, with these "
            "settings, hold for sgd only; fedavg and fedopt, for example, support any"
        )
    if settings.local.momentum and algorithm.optimizer == "plain_sgd":
        raise SettingsError(
            f"local.momentum = {settings.local.momentum:g}: algorithm {settings.algorithm.name} uses its own local "
            "steps, without momentum; set it to 0"
        )


def refuse_other_phases(settings: RunSettings, algorithm: Algorithm) -> None:
    """Refuse what holds for the first of several trainings only, where an algorithm has phases of its own."""
    name = settings.algorithm.name
    if overrides(algorithm, "phases") and settings.local.keeps_momentum:
        raise SettingsError(
            f"local.momentum_scope = client: algorithm {name} resets momentum at the start of each of its training "
            "phases; use round"
        )
    if overrides(algorithm, "phases") and settings.communication.name != "per_round":
        raise SettingsError(
            f"communication {settings.communication.name} averages inside rounds, but algorithm {name} trains in phases; "
            "use communication: per_round"
        )


def refuse_early_stop(settings: RunSettings, algorithm: Algorithm) -> None:
    """Refuse an early stop by loss where it has nothing to stop, or where something is planned by the steps to come."""
    local, name, communication = settings.local, settings.algorithm.name, settings.communication.name
    if algorithm.early_stop is None:
        return
    what = f"algorithm {name} stops clients early"
    refused = [
        (
            local.unit not in EPOCHS,
            f"local.{local.unit} = {local.amount}: {what} after a local epoch; use local.epochs or local.mean_epochs",
        ),
        (
            local.amount < 2,
            f"local.{local.unit} = {local.amount}: {what} after the second local epoch at the earliest; use 2 or more",
        ),
        (
            communication != "per_round",
            f"communication {communication} averages after planned steps, but {what}; use communication: per_round",
        ),
        (settings.mode.name == "async", f"mode: async plans when a client is done, but {what}; use mode: sync"),
    ]
    if problems := [problem for found, problem in refused if found]:
        raise SettingsError(problems[0])


def refuse_other_mode(chosen: Chosen) -> None:
    """Refuse what needs rounds with ``mode: async``, and what needs events with ``mode: sync``."""
    settings, algorithm = chosen.settings, chosen.algorithm
    name, rule, communication = settings.algorithm.name, settings.participation.name, settings.communication.name
    if not isinstance(settings.mode, Async):
        if "sync" not in algorithm.modes:
            raise SettingsError(f"algorithm {name} updates its model as results arrive and requires mode: async")
        return
    refused = [
        (
            "async" not in algorithm.modes,
            f"algorithm {name} works in rounds; for mode: async use one like fedbuff, fedasync, mifa or fedvarp",
        ),
        (rule != "all", f"participation {rule} samples cohorts per round; with mode: async use participation: all"),
        (
            communication != "per_round",
            f"communication {communication} averages inside rounds; with mode: async use communication: per_round",
        ),
        (not settings.costs.wireless, "costs.wireless = false: mode: async requires simulated times; set it to true"),
        (
            settings.local.unit == "mean_epochs",
            "local.mean_epochs equalizes the steps of a round; with mode: async use local.epochs or local.steps",
        ),
        (
            settings.local.keeps_momentum,
            "local.momentum_scope = client keeps momentum or moments from round to round; with mode: async use round",
        ),
        (
            settings.evaluation.consistency,
            "evaluation.consistency = true compares the participants of a round and requires mode: sync",
        ),
        (
            chosen.evaluates("all"),
            "evaluation of the model all, the mean of the clients' latest models, requires mode: sync",
        ),
    ]
    if problems := [problem for found, problem in refused if found]:
        raise SettingsError(problems[0])
