"""The plug-ins and features of one run, built once."""

from __future__ import annotations

from fedtide.core import plugins
from fedtide.core.errors import SettingsError
from fedtide.core.plugins import PluginSettings
from fedtide.federation.assembly.attackers import Attackers
from fedtide.federation.features.attack import Attacking
from fedtide.federation.features.consistency import Consistency
from fedtide.federation.features.detection import Detection
from fedtide.federation.features.downlink import Downlink
from fedtide.federation.features.kept_models import LastServed, Latest
from fedtide.federation.features.rule import AggregationRule
from fedtide.federation.features.synthetic import SyntheticSamples
from fedtide.federation.features.uplink import Uplink
from fedtide.federation.types import Channel, Chosen, Feature
from fedtide.methods.aggregation.base import Rule
from fedtide.methods.algorithms.base import Algorithm
from fedtide.methods.communication.base import Communication
from fedtide.methods.detectors.base import Detector
from fedtide.methods.initializers.base import Initializer
from fedtide.methods.uplink.base import Compression, Link
from fedtide.methods.weighting.base import Weighting
from fedtide.settings.run import RunSettings
from fedtide.training.models.base import Model
from fedtide.training.objectives.base import Objective
from fedtide.world.dataset import Dataset
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
        attackers=None if settings.attack.name == "none" else Attackers.of(settings, timeline, data),
    )
    chosen.features = features_of(chosen)
    chosen.channel = next((feature for feature in chosen.features if isinstance(feature, Channel)), chosen.channel)
    return chosen


def features_of(chosen: Chosen) -> tuple[Feature, ...]:
    """The features that settings ask for, a line each: the server's first, the clients' last."""
    s = chosen.settings
    features = [
        None if s.detector.name == "none" else Detection(plugins.create(Detector, s.detector), s.seed),
        SyntheticSamples(chosen.algorithm.synthetic_per_shard),
        None if s.aggregation.name == "mean" else AggregationRule(plugins.create(Rule, s.aggregation)),
        None if s.downlink is None else Downlink(_compression(s.downlink)),
        Consistency() if s.evaluation.consistency else None,
        Latest() if chosen.evaluates("all") else None,
        LastServed() if s.evaluation.departed_clients == "last_model" else None,
        Uplink(chosen.links) if chosen.links else None,
        None if chosen.attackers is None else Attacking(chosen.attackers),
    ]
    return tuple(feature for feature in features if feature is not None)


def _compression(settings: PluginSettings) -> Compression:
    """The compressor of the downlink."""
    link = plugins.create(Link, settings)
    if not isinstance(link, Compression):
        raise SettingsError(f"downlink {settings.name} is not a compressor; use one like qsgd, top_k or sign")
    link.memory = ()  # what is lost is kept by the server, as the difference of its model and the clients'
    return link
