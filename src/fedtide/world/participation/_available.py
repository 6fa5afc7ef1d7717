"""Availability: clients are available or not, and of those available all or some are sampled.

It is not in the timeline: a client that leaves the timeline may lose its state, an unavailable one never does.
"""

from abc import abstractmethod
from typing import Literal

import numpy as np
from pydantic import Field

from fedtide.core.array_types import Bools, Floats, Ints
from fedtide.core.errors import SettingsError
from fedtide.core.plugins import PluginSettings
from fedtide.core.randomness import generator
from fedtide.world.participation.base import Participation, coins, smallest
from fedtide.world.timeline import Timeline

_ATTEMPTS = 100_000


class AvailableSettings(PluginSettings):
    count: int | None = Field(None, ge=1, description="clients sampled from those available; null: all")
    choose: Literal["random", "oldest"] = Field(
        "random", description="sampling: uniform, or the least recently selected clients"
    )


class Available(Participation):
    """Samples among the clients that are available.

    The state of a client is a function of (seed, client, round) alone. If nobody is available, one of the clients present
    takes part, which changes no state.
    """

    settings: AvailableSettings

    @property
    def private(self) -> bool:
        return True

    def bind(self, timeline: Timeline, labels: Ints, seed: int) -> None:
        self.timeline, self.labels, self.seed = timeline, labels, seed
        self._restart()

    def _restart(self) -> None:
        self._next, self._last = 0, np.full(self.timeline.num_clients, -1, dtype=np.int64)

    @abstractmethod
    def states(self, round_: int) -> Bools:
        """Who is available in ``round_``, present or not: bool [N]."""

    @abstractmethod
    def stationary(self) -> Floats:
        """Share of rounds in which each client is available in the long run, float64 [N]."""

    def available(self, present: Ints, round_: int) -> Ints:
        """Positions into ``present`` of those available, at least one."""
        here = np.flatnonzero(self.states(round_)[present])
        return here if len(here) else self.anybody(present, round_)

    def anybody(self, present: Ints, round_: int) -> Ints:
        """The position of one present client, sampled uniformly."""
        return generator(self.seed, "participation.anybody", round_).integers(len(present), size=1)

    def draw(self, present: Ints, round_: int, seed: int) -> Ints:
        here, count = self.available(present, round_), self.settings.count
        if count is None or len(here) <= count:
            return here
        if self.settings.choose == "oldest":
            return np.sort(here[np.argsort(self.last(round_)[present[here]], kind="stable")[:count]])
        keys = generator(seed, "participation.choice", round_).random(self.timeline.num_clients)
        return here[smallest(keys[present[here]], count)]

    def participation_fraction(self, present: int) -> float:
        """See :meth:`Participation.participation_fraction`: the mean availability, at most ``count`` of ``present``."""
        share, count = float(self.stationary().mean()), self.settings.count
        return max(share if count is None else min(share, count / present), 1 / present)

    def last(self, round_: int) -> Ints:
        """Round of each client's last participation before ``round_``, -1 for none: int64 [N]."""
        if round_ < self._next:
            self._restart()
        while self._next < round_:
            present = self.timeline.eligible_of(self.timeline.at(self._next)).clients
            self._last[present[self.draw(present, self._next, self.seed)]] = self._next
            self._next += 1
        return self._last


class SharedSettings(AvailableSettings):
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


class Shared(Available):
    """Models in which every client has an availability pi_i of its own."""

    settings: SharedSettings

    @property
    def needs_classes(self) -> bool:
        return self.settings.shares in ("labels", "smallest_label")

    @property
    def private(self) -> bool:
        return not self.needs_classes

    def bind(self, timeline: Timeline, labels: Ints, seed: int) -> None:
        super().bind(timeline, labels, seed)
        self.pi = client_shares(self.settings, timeline, labels, seed)

    def stationary(self) -> Floats:
        return self.pi

    def uniforms(self, round_: int, attempt: int = 0) -> Floats:
        """u_i(t) of everybody, float64 [N]."""
        return coins(np.arange(self.timeline.num_clients), round_, self.seed, attempt)


class Independent(Shared):
    """Models whose rounds are independent; one in which nobody is available is drawn again."""

    def chances(self, round_: int) -> Floats:
        """p_i(t), float64 [N]."""
        return self.pi

    def states(self, round_: int) -> Bools:
        return self.uniforms(round_) < self.chances(round_)

    def available(self, present: Ints, round_: int) -> Ints:
        """See :meth:`Available.available`; one client sampled uniformly if nobody has a chance."""
        chances = self.chances(round_)[present]
        if not chances.any():
            return self.anybody(present, round_)
        for attempt in range(_ATTEMPTS):
            here = np.flatnonzero(self.uniforms(round_, attempt)[present] < chances)
            if len(here):
                return here
        raise SettingsError(
            f"participation {self.settings.name}: availabilities of at most {chances.max():.1g} are too small for "
            f"{len(present)} present clients: no client joined round {round_} in {_ATTEMPTS} draws"
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


def client_shares(settings: SharedSettings, timeline: Timeline, labels: Ints, seed: int) -> Floats:
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


def _values(settings: SharedSettings, wanted: int, of: str) -> Floats:
    given = settings.values or ()
    if len(given) != wanted:
        raise SettingsError(f"participation.values: got {len(given)} numbers; expected one for each of {wanted} {of}")
    return _probabilities("values", given)


def _probabilities(key: str, values: tuple[float, ...]) -> Floats:
    if not all(0 <= value <= 1 for value in values):
        raise SettingsError(f"participation.{key} = {list(values)} should be probabilities from 0 to 1")
    return np.array(values, dtype=np.float64)
