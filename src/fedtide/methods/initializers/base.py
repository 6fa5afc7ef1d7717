"""What an initializer is, and what all share: the pilot sessions and the start of the first session after them."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from fedtide.core.plugins import Plugin, PluginSettings
from fedtide.settings.run import InitializerSettings
from fedtide.training.engine.flat import Layout
from fedtide.training.engine.local import Term

__all__ = ["Boundary", "Initializer", "InitializerSettings", "Services", "Start", "average", "pilot_models"]

Store = dict[str, Tensor]


def remember(store: Store, group: str, session: int, **tensors: Tensor) -> None:
    """Store named tensors of a session under ``<group>.<session>.<name>``."""
    store.update({f"{group}.{session}.{name}": value for name, value in tensors.items()})


def recall(store: Store, group: str, session: int, name: str) -> Tensor:
    """One stored tensor."""
    return store[f"{group}.{session}.{name}"]


def sessions(store: Store, group: str) -> list[int]:
    """Sessions of which a group has tensors, ascending."""
    parts = (key.split(".") for key in store)
    return sorted({int(part[1]) for part in parts if len(part) == 3 and part[0] == group})


def forget(store: Store, group: str, session: int) -> None:
    """Drop a session's tensors."""
    for key in [key for key in store if key.startswith(f"{group}.{session}.")]:
        del store[key]


Start = tuple[Tensor, Tensor]
"""Parameters [d] and floating buffers [q]."""


def revised(store: Store, ends: Mapping[int, Start]) -> Store:
    """What an initializer keeps if the sessions after the pilot, by number, had ended with other models; others are dropped."""
    found = {key: value for key, value in store.items() if not key.startswith(("session.", "sum_")) and key != "count"}
    for z, (w, b) in sorted(ends.items()):
        if f"session.{z}.w" in store:
            found |= {key: value for key, value in store.items() if key.startswith(f"session.{z}.")}
            remember(found, "session", z, w=w, b=b)
        if "count" in store:
            accumulate(found, (w, b))
    return found


def accumulate(store: Store, end: Start) -> None:
    """Add the final model of a session to their sum, in float64."""
    w, b = (part.to(torch.float64) for part in end)
    if "count" in store:
        w, b = store["sum_w"] + w, store["sum_b"] + b
    store.update(sum_w=w, sum_b=b, count=store.get("count", torch.zeros((), dtype=torch.int64)) + 1)


class Services(Protocol):
    """What the federation can do for an initializer at the start of a session."""

    @property
    def layout(self) -> Layout:
        """Names and slices of the parameters."""

    def train(self, w: Tensor, b: Tensor, rounds: int, lr: float, steps: int | None, batch_size: int | None) -> Tensor:
        """Parameters [d] after some rounds of the run's own algorithm with the clients present; see ``GradientRounds``."""


@dataclass
class Boundary:
    """The moment between two sessions (or before the first, or after the last).

    Attributes:
        session: 0-based number of the session that begins (in ``start``) or has ended (in ``end``).
        pilot: number of pilot sessions P.
        w, b: current model. w0, b0: the run's initial model.
        devices: ids of the clients of that session.
        store: named tensors that the initializer keeps; saved with the run.
        lr: learning rate at the start of the schedule.
        old_labels: bool [L], labels of the sessions before this one.
        facts: JSON-able facts on how the model was chosen, recorded with the session.
        kind: number of the kind of period that begins or has ended, where periods recur; else None.
    """

    session: int
    pilot: int
    w: Tensor
    b: Tensor
    w0: Tensor
    b0: Tensor
    devices: list[int]
    store: Store
    lr: float
    old_labels: Tensor
    services: Services
    facts: dict[str, Any] = field(default_factory=dict)
    kind: int | None = None


class Initializer(Plugin):
    """Chooses the model a session starts from.

    The pilot sessions, what is stored during them, and the first session after them are the same for every initializer; they
    differ from session P + 2 on (1-based; dynamic-initialization paper, Algorithm 1).

    Attributes:
        trains: whether it trains at session starts, on memories separate from the run's.
        fresh: whether its sessions start from an untrained model.
        private: whether it chooses by released models and the timeline alone, as client-level privacy needs.
    """

    kind: ClassVar[str] = "initializers"

    Settings: ClassVar[type[PluginSettings]] = InitializerSettings
    settings: InitializerSettings
    trains: ClassVar[bool] = False
    fresh: ClassVar[bool] = False
    private: ClassVar[bool] = False

    def start(self, s: Boundary) -> Start:
        """Model that session ``s.session`` starts from."""
        if s.session >= s.pilot:
            self.prepare(s)
        if s.session == 0:
            return s.w0, s.b0
        if s.session < s.pilot:
            return s.w, s.b
        if s.session > s.pilot:
            return self.construct(s)
        for session in sessions(s.store, "pilot"):
            forget(s.store, "pilot", session)
        return (s.w, s.b) if self.settings.post_pilot_start == "carry" else (s.w0, s.b0)

    def end(self, s: Boundary) -> None:
        """Called with the final model of every session: keeps those of the pilot, and the sum of those after it."""
        if s.session < s.pilot:
            remember(s.store, "pilot", s.session, w=s.w.clone(), b=s.b.clone())
            return
        accumulate(s.store, (s.w, s.b))
        self.keep(s)

    def prepare(self, s: Boundary) -> None:
        """Called first at the start of every session after the pilot, before the pilot's models are dropped."""

    @abstractmethod
    def construct(self, s: Boundary) -> Start:
        """Initial model of a session, from the second one after the pilot on."""

    def mixture(self, store: Store, sessions: Sequence[int]) -> dict[int, float]:
        """Weights of earlier sessions' models in the latest start; empty if that was no mixture.

        ``sessions``: numbers of those after the pilot whose models are known.
        """
        return {}

    def keep(self, s: Boundary) -> None:
        """Called with the final model of every session after the pilot."""

    def terms(self, store: Store) -> list[Term]:
        """Extra losses of this session's rounds, on top of the algorithm's own."""
        return []


def pilot_models(s: Boundary) -> list[Start]:
    """Final models of the pilot sessions, oldest first; dropped after :meth:`Initializer.prepare`."""
    return [(recall(s.store, "pilot", z, "w"), recall(s.store, "pilot", z, "b")) for z in sessions(s.store, "pilot")]


def average(s: Boundary) -> Start | None:
    """Plain mean of the final models of all sessions after the pilot, summed in float64; ``None`` if there is none yet."""
    if "count" not in s.store:
        return None
    count = int(s.store["count"])
    return (s.store["sum_w"] / count).to(s.w.dtype), (s.store["sum_b"] / count).to(s.b.dtype)
