"""Which algorithms go with which clock and which local optimiser."""

from __future__ import annotations

from fedtide.algorithms.base import Algorithm
from fedtide.core.errors import SettingsError
from fedtide.federation.footprint import evaluates
from fedtide.settings.clock import Events
from fedtide.settings.optimiser import Sgd
from fedtide.settings.run import RunSettings


def refuse_other_optimiser(settings: RunSettings, algorithm: Algorithm) -> None:
    """Refuse a local optimiser whose displacements an algorithm would take for sums of gradients.

    Raises:
        SettingsError: it would.
    """
    chosen = settings.local.optimiser
    if algorithm.needs_sgd and not isinstance(chosen, Sgd):
        raise SettingsError(
            f"local.optimiser = {chosen.name}: the formulas of algorithm {settings.algorithm.name}, with these settings, hold "
            "for sgd only; fedavg and fedopt, for example, take any"
        )


def refuse_other_clock(settings: RunSettings, algorithm: Algorithm) -> None:
    """Refuse what needs rounds with ``clock: events``, and what needs events with ``clock: rounds``.

    Raises:
        SettingsError: something does.
    """
    name, rule, exchange = settings.algorithm.name, settings.participation.name, settings.exchange.name
    if not isinstance(settings.clock, Events):
        if "rounds" not in algorithm.clocks:
            raise SettingsError(f"algorithm {name} updates its model as results arrive; it needs clock: events")
        return
    refused = [
        (
            "events" not in algorithm.clocks,
            f"algorithm {name} works in rounds; clock: events needs one like fedbuff, fedasync, mifa or fedvarp",
        ),
        (rule != "all", f"participation {rule} draws the cohorts of rounds; with clock: events use participation: all"),
        (exchange != "end", f"exchange {exchange} averages inside rounds; with clock: events use exchange: end"),
        (not settings.costs.wireless, "costs.wireless = false: clock: events takes its seconds from there"),
        (
            settings.local.unit == "mean_epochs",
            "local.unit = mean_epochs equalises the steps of a round; with clock: events use epochs or steps",
        ),
        (
            settings.local.keeps_momentum,
            "local.momentum_scope = client keeps momentum or moments from round to round; with clock: events use round",
        ),
        (
            settings.evaluation.consistency,
            "evaluation.consistency = true compares the participants of a round; it needs clock: rounds",
        ),
        (
            evaluates(settings, algorithm, "all"),
            "evaluation of the model all, the mean of the clients' latest models, needs clock: rounds",
        ),
    ]
    if problems := [problem for found, problem in refused if found]:
        raise SettingsError(problems[0])
