"""A small run through any plug-in, on synthetic samples unless the plug-in is a dataset."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedtide.authoring.rounds import Run, begin, run_rounds, with_engine
from fedtide.authoring.samples import clusters, smallest
from fedtide.core import plugins
from fedtide.federation.rounds.round import RoundRecord
from fedtide.federation.types import RunState
from fedtide.settings.choices import kind_of
from fedtide.settings.params import Params
from fedtide.settings.reading.overrides import override
from fedtide.settings.run import RunSettings
from fedtide.training.models.base import Model
from fedtide.world.building.build import build_timeline
from fedtide.world.dataset import Dataset
from fedtide.world.storage.prepared import load
from fedtide.world.timeline import Timeline

_NESTED = {"selection": "communication.selection", "weighting": "algorithm.weighting"}
_FIELDS = {kind: key for key, field in reversed(RunSettings.model_fields.items()) if (kind := kind_of(field))}
_KEYS = {**_FIELDS, **_NESTED}
"""The settings that choose a plug-in of each kind."""

_ROUNDS = 8
"""Most rounds of a trial; scenarios may have more."""

_OBJECTIVES = {"regression": "mean_squared_error", "multilabel": "binary_cross_entropy"}


@dataclass(frozen=True)
class Trial:
    """A plug-in and a small run of it.

    Attributes:
        kind, name: of the plug-in.
        overrides: further settings of the run and of the plug-in, such as ``scenario.file=trace.csv``.
    """

    kind: str
    name: str
    overrides: Sequence[str] = field(default=())

    @property
    def plugin(self) -> Any:
        """Its class."""
        return plugins.load(self.kind, self.name)

    @property
    def _own(self) -> tuple[dict[str, Any], list[str]]:
        """What the overrides set of the plug-in itself, and the other overrides."""
        own: dict[str, Any] = {}
        others: list[str] = []
        for item in self.overrides:
            group, _, key = item.partition("=")[0].strip().rpartition(".")
            if group == _KEYS[self.kind]:
                override(own, f"{key}={item.partition('=')[2]}")
            else:
                others.append(item)
        return own, others

    @property
    def given(self) -> dict[str, Any]:
        """The plug-in's settings that are not left at their defaults, and its name."""
        return {"name": self.name, **self._own[0]}

    def settings(self, data: Dataset | None = None, **values: Any) -> RunSettings:
        """Settings of the run; ``values`` are settings of the plug-in."""
        raw: dict[str, Any] = {
            "model": "softmax_regression",
            "validation": 0.0,
            "scenario": {"name": "sessions", "num_sessions": 4, "rounds_per_session": 2, "num_devices": 5},
            "partition": "iid",
            "participation": {"name": "fixed", "fraction": 0.6},
            "local": {"steps": 2, "batch_size": 4, "lr": 0.05},
            "engine": {"workers": 1},
        }
        own = {**self.given, **values}
        if self.kind == "algorithms":
            if "sync" not in self.plugin.modes:
                raw |= {"mode": "async", "participation": "all"}
            if "body" in self.plugin.needs:
                raw["model"] = {"name": "mlp", "widths": [4]}
        if self.kind == "weighting":
            raw["algorithm"] = {"name": "fedavg", "weighting": own}
        elif self.kind == "selection":
            raw["communication"] = {"name": "intervals", "intervals": "1-4", "selection": own}
        else:
            key = _KEYS[self.kind]
            raw[key] = [own] if RunSettings.model_fields[key].default == () else own
        if data is not None and self.kind == "data":
            raw["model"] = "embedding_bag" if data.kind == "text" else "softmax_regression"
            raw |= {"objective": _OBJECTIVES[data.task]} if data.task in _OBJECTIVES else {}
        return Params.read(raw, self._own[1]).run()

    def data(self) -> Dataset:
        """What the run is trained on: a dataset itself, the smallest samples that a model takes, or ten clusters."""
        chosen = self.settings()
        if self.kind == "data":
            root, mirror = chosen.data.root, chosen.data.mirror
            return load(self.plugin(chosen.data), Path(root), Path(mirror) if mirror else None)
        return smallest(plugins.create(Model, chosen.model)) if self.kind == "models" else clusters()

    def run(self) -> Run:
        """Settings, timeline and data, built anew."""
        data = self.data()
        chosen = self.settings(data)
        return chosen, short(build_timeline(chosen, data)), data

    @functools.cached_property
    def whole(self) -> tuple[Run, tuple[RunState, list[RoundRecord]]]:
        """The run, and its final state and records with clients trained one by one."""
        run = self.run()
        return run, run_rounds(begin(with_engine(run)))


def short(timeline: Timeline, rounds: int = _ROUNDS) -> Timeline:
    """The first rounds of a timeline."""
    names = ("assignment_of_round", "session_of_round", "view_of_round")
    return replace(timeline, **{name: getattr(timeline, name)[:rounds] for name in names})
