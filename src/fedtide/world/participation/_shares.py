"""The availability of each client: the share of rounds pi_i in which it is available in the long run."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from fedtide.core.array_types import Floats, Ints
from fedtide.core.errors import SettingsError
from fedtide.core.plugins import PluginSettings
from fedtide.core.randomness import generator
from fedtide.world.timeline import Timeline


class ShareSettings(PluginSettings):
    shares: Literal["range", "two_groups", "beta", "given", "labels", "smallest_label"] = Field(
        "range",
        description="availability of each client: uniform from `lowest` to 1, of two groups, Beta distributed, given, or by "
        "the labels it holds (u_c averaged by the client's label shares; or growing with its smallest label)",
    )
    lowest: float = Field(0.1, ge=0, le=1, description="range, smallest_label: lowest availability")
    groups: tuple[float, float] = Field((0.9, 0.1), description="two_groups: availability of even and of odd ids")
    beta: tuple[float, float] = Field((2.0, 2.0), description="beta: both parameters of the distribution")
    values: tuple[float, ...] | None = Field(
        None, description="given: one availability per client; labels: u_c of each class, null: sampled"
    )


def label_shares(timeline: Timeline, labels: Ints) -> Floats:
    """Share of each label [N, L] in what a client holds over the run, every shard once; zeros for a client without data."""
    held = (zip(item.clients.tolist(), item.shards.tolist(), strict=True) for item in timeline.assignments)
    pairs = {pair for item in held for pair in item}
    counts = np.zeros((timeline.num_clients, timeline.num_classes))
    for client, shard in sorted(pairs):
        counts[client] += np.bincount(labels[timeline.shards[shard]], minlength=timeline.num_classes)
    shares: Floats = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    return shares


def draw_label_chances(classes: int, seed: int) -> Floats:
    """u_c [L]: U(0, 1) for the first L // 2 classes and U(0, 1/2) for the others (FedAWE's experiments)."""
    ends = np.where(np.arange(classes) < classes // 2, 1.0, 0.5)
    drawn: Floats = generator(seed, "participation.labels").random(classes) * ends
    return drawn


def client_shares(settings: ShareSettings, timeline: Timeline, labels: Ints, seed: int) -> Floats:
    """pi_i, float64 [N]; a SettingsError if given values are no probabilities, too few or too many."""
    clients, rng = timeline.num_clients, generator(seed, "participation.shares")
    if settings.shares == "range":
        return settings.lowest + (1 - settings.lowest) * rng.random(clients)
    if settings.shares == "beta":
        if min(settings.beta) <= 0:
            raise SettingsError(f"participation.beta = {list(settings.beta)} should be two positive numbers")
        return rng.beta(*settings.beta, clients)
    if settings.shares == "two_groups":
        return _probabilities("groups", settings.groups)[np.arange(clients) % 2]
    if settings.shares == "given":
        return _values(settings, clients, "clients")
    held = label_shares(timeline, labels)
    if settings.shares == "smallest_label":  # MIFA's adversarial availability, there for ten labels
        smallest = np.where(held.any(1), (held > 0).argmax(1), 0)
        return settings.lowest + (1 - settings.lowest) * smallest / max(1, timeline.num_classes - 1)
    classes = timeline.num_classes
    u = draw_label_chances(classes, seed) if settings.values is None else _values(settings, classes, "classes")
    return np.minimum(held @ u, 1.0)


def _values(settings: ShareSettings, wanted: int, of: str) -> Floats:
    given = settings.values or ()
    if len(given) != wanted:
        raise SettingsError(f"participation.values: got {len(given)} numbers; expected one for each of {wanted} {of}")
    return _probabilities("values", given)


def _probabilities(key: str, values: tuple[float, ...]) -> Floats:
    if not all(0 <= value <= 1 for value in values):
        raise SettingsError(f"participation.{key} = {list(values)} should be probabilities from 0 to 1")
    return np.array(values, dtype=np.float64)
