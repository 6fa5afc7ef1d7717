"""Which algorithms go with which clock, which local optimiser and which links."""

from __future__ import annotations

from itertools import pairwise

from fedtide.algorithms.base import Algorithm
from fedtide.core.errors import SettingsError
from fedtide.engine.flat import Layout
from fedtide.engine.plan import EPOCHS
from fedtide.federation.assembly.chosen import Chosen
from fedtide.settings.clock import Events
from fedtide.settings.optimiser import Sgd
from fedtide.settings.run import RunSettings


def refuse_other_optimiser(settings: RunSettings, algorithm: Algorithm) -> None:
    """Refuse a local optimiser whose displacements an algorithm would take for sums of gradients."""
    chosen = settings.local.optimiser
    if algorithm.needs_sgd and not isinstance(chosen, Sgd):
        raise SettingsError(
            f"local.optimiser = {chosen.name}: the formulas of algorithm {settings.algorithm.name}, with these settings, hold "
            "for sgd only; fedavg and fedopt, for example, take any"
        )
    if settings.local.momentum and not algorithm.takes_momentum:
        raise SettingsError(
            f"local.momentum = {settings.local.momentum:g}: algorithm {settings.algorithm.name} takes local steps of its own, "
            "without momentum; set it to 0"
        )


def refuse_other_phases(settings: RunSettings, algorithm: Algorithm) -> None:
    """Refuse what holds for the first of several trainings only, where an algorithm has phases of its own."""
    name = settings.algorithm.name
    if algorithm.has_phases and settings.local.keeps_momentum:
        raise SettingsError(
            f"local.momentum_scope = client: algorithm {name} trains in phases, each of which starts at rest; use round"
        )
    if algorithm.has_phases and settings.exchange.name != "end":
        raise SettingsError(
            f"exchange {settings.exchange.name} averages inside rounds, but algorithm {name} trains in phases; "
            "use exchange: end"
        )


def refuse_early_stop(settings: RunSettings, algorithm: Algorithm) -> None:
    """Refuse an early stop by loss where it has nothing to stop, or where something is planned by the steps to come."""
    local, name, exchange = settings.local, settings.algorithm.name, settings.exchange.name
    if algorithm.early_stop is None:
        return
    what = f"algorithm {name} stops clients early"
    refused = [
        (local.unit not in EPOCHS, f"local.unit = {local.unit}: {what} after a local epoch; use epochs or mean_epochs"),
        (
            local.amount < 2,
            f"local.amount = {local.amount}: {what} after the second local epoch at first; use 2 or more",
        ),
        (exchange != "end", f"exchange {exchange} averages after planned steps, but {what}; use exchange: end"),
        (settings.clock.name == "events", f"clock: events plans when a client is done, but {what}; use clock: rounds"),
    ]
    if problems := [problem for found, problem in refused if found]:
        raise SettingsError(problems[0])


def refuse_other_uplink(chosen: Chosen) -> None:
    """Refuse links and aggregation rules that do not go with the rest of a run."""
    settings, algorithm, links, rule = chosen.settings, chosen.algorithm, chosen.links, chosen.rule
    events = settings.clock.name == "events"
    same = [pair for pair in pairwise(links) if pair[0].place == pair[1].place]
    what = f"uplink {links[0].settings.name}" if links else f"aggregation {settings.aggregation.name}"
    refused = [
        (
            bool(same),
            f"uplink lists {' and '.join(link.settings.name for pair in same for link in pair)}: use one of them",
        ),
        (
            bool(links or rule) and settings.exchange.name != "end",
            f"{what}: exchange {settings.exchange.name} averages inside rounds, so that a client has no update of its own; "
            "use exchange: end",
        ),
        (
            rule is not None and not algorithm.robust,
            f"aggregation {settings.aggregation.name}: algorithm {settings.algorithm.name} adds up the participants' updates "
            "itself, or needs each of them; use aggregation: mean, or an algorithm like fedavg, fedprox, fedcm or fedwcm",
        ),
        (
            chosen.attackers is not None and chosen.attackers.attack.forges and settings.exchange.name != "end",
            f"attack {settings.attack.name}: exchange {settings.exchange.name} averages inside rounds, so that a client has no "
            "update of its own; use exchange: end",
        ),
        (
            any(link.memory for link in links) and events,
            "clock: events may use two results of a client at once; use links that keep no memory of clients",
        ),
        (
            rule is not None and events and algorithm.buffer < 3,
            f"aggregation {settings.aggregation.name} needs three results per update or more; set algorithm.buffer",
        ),
    ]
    if problems := [problem for found, problem in refused if found]:
        raise SettingsError(problems[0])


def refuse_other_downlink(chosen: Chosen, layout: Layout) -> None:
    """Refuse a compressed downlink that loses more than it gets, or that does not go with the rest of a run."""
    link, settings, algorithm = chosen.downlink, chosen.settings, chosen.algorithm
    if link is None:
        return
    link.bind([link], layout)
    name, remedy, others = settings.algorithm.name, link.remedy(layout.size), "use one like fedavg, scaffold or fedbuff"
    field = type(link.settings).model_fields.get("error_feedback")
    trains = algorithm.has_phases or type(algorithm).start is not Algorithm.start
    refused = [
        (
            bool(remedy),
            f"with these settings it may lose as much as it gets, and errors could grow without bound; {remedy}",
        ),
        (
            getattr(link.settings, "memory_decay", 1) != 1,
            "memory_decay has no effect, since what was lost is part of the next update; leave it out",
        ),
        (
            field is not None and field.default is True and not link.settings.error_feedback,
            "error_feedback = false has no effect, since what was lost is part of the next update; leave it out",
        ),
        (
            settings.exchange.name != "end",
            f"exchange {settings.exchange.name} averages inside rounds, and averages are no updates of the server's model; "
            "use exchange: end",
        ),
        (
            type(algorithm).served is not Algorithm.served or "w" not in algorithm.down,
            f"algorithm {name} sends clients other models than one for all; {others}",
        ),
        (algorithm.shared(layout) is not None, f"algorithm {name} sends a part of the model; {others}"),
        (
            trains and not algorithm.starts_from_w,
            f"algorithm {name} lets clients train from another model than the one that is sent; {others}",
        ),
    ]
    if problems := [problem for found, problem in refused if found]:
        raise SettingsError(f"downlink {link.settings.name}: {problems[0]}")


def refuse_other_clock(chosen: Chosen) -> None:
    """Refuse what needs rounds with ``clock: events``, and what needs events with ``clock: rounds``."""
    settings, algorithm = chosen.settings, chosen.algorithm
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
            chosen.evaluates("all"),
            "evaluation of the model all, the mean of the clients' latest models, needs clock: rounds",
        ),
    ]
    if problems := [problem for found, problem in refused if found]:
        raise SettingsError(problems[0])
