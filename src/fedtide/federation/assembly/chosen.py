"""The plug-ins of one run, built once."""

from __future__ import annotations

from dataclasses import dataclass

from fedtide.aggregation.base import Rule
from fedtide.algorithms.base import Algorithm, shared_size
from fedtide.core import plugins
from fedtide.core.errors import SettingsError
from fedtide.core.plugins import PluginSettings
from fedtide.detectors.base import Detector
from fedtide.engine.flat import Layout
from fedtide.engine.optimisers import optimiser
from fedtide.exchange.base import Exchange
from fedtide.federation.assembly.attackers import Attackers
from fedtide.initialisation.base import Initialiser
from fedtide.models.base import Model
from fedtide.objectives.base import Objective
from fedtide.participation.base import Participation
from fedtide.settings.run import RunSettings
from fedtide.uplink.base import Compression, Link, memory_name
from fedtide.weighting.base import Weighting
from fedtide.world.dataset import Dataset
from fedtide.world.timeline import Timeline

LATEST, LAST_SERVED = "latest", "last_served"
"""Rows kept for evaluation: each client's latest local model, and the one that it was served before it left."""


def _compression(settings: PluginSettings) -> Compression:
    """The compressor of the downlink."""
    link = plugins.create(Link, settings)
    if not isinstance(link, Compression):
        raise SettingsError(f"downlink {settings.name} is no compressor; use one like qsgd, top_k or sign")
    link.memory = ()  # what is lost is kept by the server, as the difference of its model and the clients'
    return link


@dataclass
class Chosen:
    """What a run's settings choose by name.

    ``links`` are in order, ``rule`` is None for the weighted mean, ``downlink``, ``detector`` and ``attackers`` None for none.
    """

    settings: RunSettings
    algorithm: Algorithm
    initialiser: Initialiser
    participation: Participation
    exchange: Exchange
    weighting: Weighting
    objective: Objective
    model: Model
    links: list[Link]
    downlink: Compression | None
    rule: Rule | None
    detector: Detector | None
    attackers: Attackers | None

    @staticmethod
    def of(settings: RunSettings, timeline: Timeline, data: Dataset) -> Chosen:
        """The plug-ins of a run on a timeline and its dataset."""
        participation = plugins.create(Participation, settings.participation)
        participation.bind(timeline, data.classes(slice(None)), settings.seed)
        return Chosen(
            settings=settings,
            algorithm=plugins.create(Algorithm, settings.algorithm),
            initialiser=plugins.create(Initialiser, settings.initialiser),
            participation=participation,
            exchange=plugins.create(Exchange, settings.exchange),
            weighting=plugins.create(Weighting, settings.algorithm.weighting),
            objective=plugins.create(Objective, settings.objective),
            model=plugins.create(Model, settings.model),
            links=sorted((plugins.create(Link, link) for link in settings.uplink), key=lambda link: link.place),
            downlink=None if settings.downlink is None else _compression(settings.downlink),
            rule=None if settings.aggregation.name == "mean" else plugins.create(Rule, settings.aggregation),
            detector=None if settings.detector.name == "none" else plugins.create(Detector, settings.detector),
            attackers=Attackers.of(settings, timeline, data),
        )

    def client_rows(self, layout: Layout) -> dict[str, int]:
        """Names and lengths of the rows kept for every client of a network."""
        local, size = self.settings.local, layout.size
        rows = {name: self.algorithm.width(name, layout) for name in self.algorithm.client}
        if local.keeps_momentum:
            rows |= optimiser(local).widths(size)
        if self.evaluates("all"):
            rows[LATEST] = size
        if self.settings.evaluation.departed == "last":
            rows[LAST_SERVED] = size + layout.buffer_size
        for link in self.links:
            rows |= {
                memory_name(link, name): link.width(name, shared_size(self.algorithm, layout)) for name in link.memory
            }
        return rows

    def evaluates(self, model: str) -> bool:
        """Whether ``cloud``, ``participants``, ``all`` or ``ensemble`` is evaluated in the run."""
        evaluation = self.settings.evaluation
        chosen = self.algorithm.models if evaluation.models is None else evaluation.models
        return model == evaluation.reported or model in chosen
