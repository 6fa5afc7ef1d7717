"""Requests to erase clients: who asks when, and what an eraser does not go with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedtide.core.array_types import Ints
from fedtide.core.errors import SettingsError
from fedtide.federation.features.attack import Attackers
from fedtide.federation.types import Chosen
from fedtide.methods.accounting.cohorts import cohorts
from fedtide.methods.algorithms.base import overrides
from fedtide.methods.erasers.base import Eraser
from fedtide.settings.run import RunSettings
from fedtide.world.clients import ClientNames
from fedtide.world.dataset import Dataset
from fedtide.world.timeline import Timeline


@dataclass(frozen=True)
class Request:
    """Clients ``ids``, ascending, ask before round ``at`` to be erased; ``names`` are those of all clients."""

    eraser: Eraser
    ids: Ints
    at: int
    names: ClientNames

    @staticmethod
    def of(eraser: Eraser, run: RunSettings, timeline: Timeline, data: Dataset) -> Request:
        """The request that settings name or draw on a timeline; refused if nobody can make it."""
        chosen: Any = eraser.settings
        at = chosen.at.of(timeline, "erase.at")
        names = ClientNames.of(timeline, data)
        ids = chosen.drawn(names, run.seed if run.world_seed is None else run.world_seed)
        if chosen.attackers:
            if run.attack.name == "none":
                raise SettingsError("erase.attackers = true: there are none; choose an attack")
            ids = sorted(Attackers.of(run, timeline, data).ids)
        if not 1 <= at < timeline.rounds:
            raise SettingsError(
                f"erase.at: round {at} should lie between 1 and {timeline.rounds - 1}, the run's last round"
            )
        if chosen.leavers:
            before, now = timeline.at(at - 1).clients, timeline.at(at).clients
            ids = np.setdiff1d(before, now).tolist()
        present = np.unique(np.concatenate([timeline.at(t).clients for t in range(at)]))
        if never := [client for client in ids if client not in present]:
            first = next((t for t in range(at, timeline.rounds) if never[0] in timeline.at(t).clients), None)
            when = "is never present" if first is None else f"is first present in round {first}"
            raise SettingsError(
                f"erase: client {names[never[0]]} {when}, so a request before round {at} has nothing to erase"
            )
        if not ids:
            raise SettingsError(f"erase: no client asks before round {at}; name other clients or another moment")
        return Request(eraser, np.array(ids, dtype=np.int64), at, names)

    @property
    def rounds(self) -> list[int]:
        """Rounds whose updates are stored for it."""
        return [t for t in range(self.at) if self.eraser.keeps_round(t, self.at)]

    @property
    def models(self) -> list[int]:
        """Rounds before which the model is stored for it."""
        return [t for t in range(self.at) if self.eraser.keeps_model(t)]


def refused(request: Request, chosen: Chosen, timeline: Timeline) -> str | None:
    """Why an eraser does not go with the rest of a run; None if it does."""
    eraser, settings = request.eraser, chosen.settings
    name, algorithm = f"erase {eraser.settings.name}", settings.algorithm.name
    if eraser.memory == "setting" and overrides(chosen.algorithm, "served"):
        return f"{name}: algorithm {algorithm} has personal models; use retrain or continue_training"
    hides = [link.settings.name for link in chosen.links if link.private]
    outside = eraser.helps != "nobody" and eraser.memory != "counterfactual"  # of rounds, which alone have noise
    if hides and (eraser.single or outside):
        return f"{name}: uplink {hides[0]} hides the updates of single clients; use rollback or weight_negation"
    if not eraser.single:
        return None
    if "rules" not in chosen.algorithm.admits:
        return (
            f"{name}: algorithm {algorithm} does not only average; use retrain or rollback, or an algorithm like fedavg"
        )
    if settings.aggregation.name != "mean":
        return f"{name}: aggregation {settings.aggregation.name} rejects changed updates; use aggregation: mean, or retrain"
    if settings.communication.name != "per_round":
        return (
            f"{name}: communication {settings.communication.name} averages inside rounds; use communication: per_round"
        )
    if eraser.helps == "erased":
        here = {*timeline.at(request.at - 1).clients.tolist(), *timeline.at(request.at).clients.tolist()}
        if gone := [client for client in request.ids.tolist() if client not in here]:
            who = f"client {request.names[gone[0]]}"
            return f"{name}: {who} has left before round {request.at} and cannot help; ask while it is there"
    return None


def without_rounds(requests: Sequence[Request], chosen: Chosen, timeline: Timeline) -> str | None:
    """Why an eraser cannot do with the rounds that are stored for it; None if each can."""
    if not any(request.eraser.keeps_model_after for request in requests):
        return None
    drawn = cohorts(chosen.participation, timeline, chosen.settings.seed).drawn.copy()
    for request in requests:
        drawn[request.ids, : request.at] = False
        problem = request.eraser.refuses(request.at, [t for t in request.rounds if drawn[:, t].any()])
        if problem is not None:
            return f"erase {request.eraser.settings.name}: {problem}"
    return None
