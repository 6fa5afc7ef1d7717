"""Runs beside a run, in other worlds: copies of its state that advance on the same data and workers."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import Tensor

from fedtide.federation.federation import Federation
from fedtide.federation.types import Feature, Parts, RunState
from fedtide.world.timeline import Timeline


def copied(state: RunState, without: str = "") -> RunState:
    """A copy of a run's state, but for what the feature of a name keeps."""
    values = {name: copy.deepcopy(value) for name, value in vars(state).items() if name not in ("memory", "features")}
    memory = {name: rows.clone() for name, rows in state.memory.items() if not name.startswith(f"{without}.")}
    features = {name: copy.deepcopy(value) for name, value in state.features.items() if name != without}
    return RunState(**values, memory=memory, features=features)


def beside(parts: Parts, world: Timeline, without: Feature | None = None) -> Federation:
    """A run in another world, on the same data and workers, but for a feature that it does not have."""
    features = {id(feature): copy.copy(feature) for feature in parts.features if feature is not without}
    channel: Any = features.get(id(parts.channel), parts.channel)
    own = {"features": tuple(features.values()), "channel": channel, "evaluator": copy.copy(parts.evaluator)}
    twin = replace(parts, timeline=world, **own)
    for feature in twin.features:
        feature.bind(twin)
    return Federation(twin)


def note_end(ends: dict[str, Tensor], timeline: Timeline, state: RunState) -> None:
    """Note the state's model if a session after the pilot has ended with it, as ``<session>.w`` and ``<session>.b``."""
    t = state.round
    if 0 < t < timeline.rounds and timeline.ends_session(t - 1) and timeline.session_of_round[t - 1] >= timeline.pilot:
        z = int(timeline.session_of_round[t - 1])
        ends |= {f"{z}.w": state.w.clone(), f"{z}.b": state.b.clone()}


class Twins:
    """The runs beside a run, by name: what they are is in its state, as :meth:`RunState.tensors`.

    ``world``: the timeline of a name. ``feature``: which the twins do not have; in its place they keep the final models of
    their sessions, ``ends``.
    """

    def __init__(self, feature: Feature, world: Callable[[str], Timeline]) -> None:
        self._feature, self._world = feature, world
        self._running: dict[str, tuple[Federation, RunState]] = {}
        self.starts: dict[str, Tensor] = {}
        """Models [d] before the last round of each, after the start of its session."""

    def at(self, parts: Parts, states: dict[str, dict[str, Any]], name: str, t: int) -> RunState | None:
        """The state of a twin before round ``t``; None if there is no such twin."""
        if name not in states:
            return None
        if name not in self._running or self._running[name][1].w is not states[name]["w"]:
            self._running[name] = beside(parts, self._world(name), self._feature), RunState(**states[name])
        federation, twin = self._running[name]
        while twin.round < t:
            self.starts[name] = federation.advance(twin).w
            note_end(twin.features[self._feature.name]["ends"], federation.parts.timeline, twin)
        states[name] = twin.tensors()
        return twin
