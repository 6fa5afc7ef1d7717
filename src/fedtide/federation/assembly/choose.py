"""The plug-ins and features of one run, built once, and which of them do not go together."""

from fedtide.core import plugins
from fedtide.core.discovery.faults import broken_contract
from fedtide.core.errors import SettingsError
from fedtide.core.plugins import PluginSettings
from fedtide.federation.features.attack import Attackers, Attacking
from fedtide.federation.features.consistency import Consistency
from fedtide.federation.features.detection import Detection
from fedtide.federation.features.downlink import Downlink
from fedtide.federation.features.erasure import Erasure
from fedtide.federation.features.kept_models import LastServed, Latest
from fedtide.federation.features.requests import Request
from fedtide.federation.features.rule import AggregationRule
from fedtide.federation.features.synthetic import SyntheticSamples
from fedtide.federation.features.uplink import Uplink
from fedtide.federation.types import Channel, Chosen, Feature
from fedtide.methods.aggregation.base import Rule
from fedtide.methods.algorithms.base import ADMITS, NEEDS, Algorithm, overrides
from fedtide.methods.communication.base import Communication
from fedtide.methods.detectors.base import Detector
from fedtide.methods.erasers.base import Eraser
from fedtide.methods.initializers.base import Initializer
from fedtide.methods.uplink.base import Compression, Link
from fedtide.methods.weighting.base import Weighting
from fedtide.settings.groups.local import Sgd
from fedtide.settings.run import Async, RunSettings
from fedtide.training.engine.plan import EPOCHS
from fedtide.training.models.base import Model
from fedtide.training.objectives.base import Objective
from fedtide.world.dataset import Dataset, refuse_other_task
from fedtide.world.participation.base import Participation
from fedtide.world.timeline import Timeline


def choose(settings: RunSettings, timeline: Timeline, data: Dataset) -> Chosen:
    """The plug-ins of a run on a timeline and its dataset."""
    participation = plugins.create(Participation, settings.participation)
    participation.bind(timeline, data.classes(slice(None)), settings.seed)
    chosen = Chosen(
        settings=settings,
        algorithm=plugins.create(Algorithm, settings.algorithm),
        initializer=plugins.create(Initializer, settings.initializer),
        participation=participation,
        communication=plugins.create(Communication, settings.communication),
        weighting=plugins.create(Weighting, settings.algorithm.weighting),
        objective=plugins.create(Objective, settings.objective),
        model=plugins.create(Model, settings.model),
        links=sorted((plugins.create(Link, link) for link in settings.uplink), key=lambda link: link.place),
    )
    chosen.features = features_of(chosen, timeline, data)
    chosen.channel = next((feature for feature in chosen.features if isinstance(feature, Channel)), chosen.channel)
    return chosen


def features_of(chosen: Chosen, timeline: Timeline, data: Dataset) -> tuple[Feature, ...]:
    """The features that settings ask for, a line each: the server's first, the clients' last."""
    s = chosen.settings
    features = [
        None if s.detector.name == "none" else Detection(plugins.create(Detector, s.detector), s.seed),
        SyntheticSamples(made) if (made := chosen.algorithm.synthetic_per_shard) else None,
        Erasure([Request.of(plugins.create(Eraser, e), s, timeline, data) for e in s.erase]) if s.erase else None,
        None if s.aggregation.name == "mean" else AggregationRule(plugins.create(Rule, s.aggregation)),
        None if s.downlink is None else Downlink(_compression(s.downlink)),
        Consistency() if s.evaluation.consistency else None,
        Latest() if chosen.evaluates("all") else None,
        LastServed() if s.evaluation.departed_clients == "last_model" else None,
        Uplink(chosen.links) if chosen.links else None,
        None if s.attack.name == "none" else Attacking(Attackers.of(s, timeline, data)),
    ]
    return tuple(feature for feature in features if feature is not None)


def _compression(settings: PluginSettings) -> Compression:
    """The compressor of the downlink."""
    link = plugins.create(Link, settings)
    if not isinstance(link, Compression):
        raise SettingsError(f"downlink {settings.name} is not a compressor; use one like qsgd, top_k or sign")
    link.memory = ()  # what is lost is kept by the server, as the difference of its model and the clients'
    return link


def refuse_unsuitable(chosen: Chosen, timeline: Timeline, data: Dataset) -> None:
    """Refuse what does not go together, in a line that names the setting and a way out."""
    settings, algorithm = chosen.settings, chosen.algorithm
    refuse_unknown_words(algorithm)
    refuse_other_task(data, settings)
    _refuse_other_mode(chosen)
    refuse_other_optimizer(settings, algorithm)
    _refuse_averages_inside_rounds(chosen)
    _refuse(
        (
            settings.local.keeps_momentum and overrides(algorithm, "phases"),
            f"local.momentum_scope = client: algorithm {settings.algorithm.name} resets momentum at the start of each of its "
            "training phases; use round",
        )
    )
    refuse_early_stop(settings, algorithm)
    for feature in chosen.features:
        if problem := feature.refuses(chosen, timeline, data):
            raise SettingsError(problem)
    chosen.communication.require(algorithm, settings.local)
    if "validation" in settings.evaluation.splits and not len(timeline.validation):
        raise SettingsError(f"validation = {settings.validation:g}: evaluation.splits requires a share > 0")
    if timeline.notes.get("stateless"):
        rest = f"requires stateful clients, but scenario {settings.scenario.name} uses stateless clients"
        keeps = bool(algorithm.client) or overrides(algorithm, "forget")
        _refuse(
            (keeps, f"algorithm {settings.algorithm.name} {rest}"),
            (settings.local.keeps_momentum, f"local.momentum_scope = client {rest}"),
        )


def _refuse(*problems: tuple[bool, str]) -> None:
    """Raise the first problem that there is."""
    for found, problem in problems:
        if found:
            raise SettingsError(problem)


def refuse_unknown_words(algorithm: Algorithm) -> None:
    """Refuse declarations of an algorithm that nothing reads."""
    for what, words, known in (("admits", algorithm.admits, ADMITS), ("needs", algorithm.needs, NEEDS)):
        if isinstance(words, str) or not known.keys() >= {*words}:
            raise broken_contract(algorithm, what, f"a sequence of words among {', '.join(known)}, got {words!r}")


def refuse_other_optimizer(settings: RunSettings, algorithm: Algorithm) -> None:
    """Refuse a local optimizer whose displacements an algorithm would take for sums of gradients."""
    local, name = settings.local, settings.algorithm.name
    _refuse(
        (
            algorithm.optimizer != "any" and not isinstance(local.optimizer, Sgd),
            f"local.optimizer = {local.optimizer.name}: the formulas of algorithm {name}, with these settings, hold for sgd "
            "only; fedavg and fedopt, for example, support any",
        ),
        (
            bool(local.momentum) and algorithm.optimizer == "plain_sgd",
            f"local.momentum = {local.momentum:g}: algorithm {name} uses its own local steps, without momentum; set it to 0",
        ),
    )


def _refuse_averages_inside_rounds(chosen: Chosen) -> None:
    """Refuse averages inside rounds where something else is about whole rounds, or about each client's own update."""
    settings, algorithm, communication = chosen.settings, chosen.algorithm, chosen.settings.communication.name
    if communication == "per_round":
        return
    of_updates = [feature.name for feature in chosen.features if feature.updates or isinstance(feature, Channel)]
    for found, reason in (
        (isinstance(settings.mode, Async), "mode: async has no rounds"),
        (overrides(algorithm, "phases"), f"algorithm {settings.algorithm.name} trains in phases"),
        (algorithm.early_stop is not None, f"algorithm {settings.algorithm.name} stops clients early"),
        (bool(of_updates), f"{''.join(of_updates[:1])} is about updates of a whole round, each client's own"),
    ):
        if found:
            raise SettingsError(
                f"communication {communication} averages inside rounds, but {reason}; use communication: per_round"
            )


def refuse_early_stop(settings: RunSettings, algorithm: Algorithm) -> None:
    """Refuse an early stop by loss where it has nothing to stop, or where something is planned by the steps to come."""
    local = settings.local
    what, work = f"algorithm {settings.algorithm.name} stops clients early", f"local.{local.unit} = {local.amount}"
    if algorithm.early_stop is not None:
        _refuse(
            (
                local.unit not in EPOCHS,
                f"{work}: {what} after a local epoch; use local.epochs or local.mean_epochs",
            ),
            (local.amount < 2, f"{work}: {what} after the second local epoch at the earliest; use 2 or more"),
            (settings.mode.name == "async", f"mode: async plans when a client is done, but {what}; use mode: sync"),
        )


def _refuse_other_mode(chosen: Chosen) -> None:
    """Refuse what requires rounds with ``mode: async``, and what requires jobs with ``mode: sync``."""
    settings, algorithm = chosen.settings, chosen.algorithm
    name, rule = settings.algorithm.name, settings.participation.name
    if not isinstance(settings.mode, Async):
        late = f"algorithm {name} updates its model as results arrive and requires mode: async"
        _refuse(("sync" not in algorithm.modes, late))
        return
    _refuse(
        (
            "async" not in algorithm.modes,
            f"algorithm {name} works in rounds; for mode: async use one like fedbuff, fedasync, mifa or fedvarp",
        ),
        (rule != "all", f"participation {rule} samples cohorts per round; with mode: async use participation: all"),
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
    )
