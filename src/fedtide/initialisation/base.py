"""What an initialiser is, and what all of them share: the pilot sessions and the start of the first session after them."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor

from fedtide.plugins import Plugin, PluginSettings

Start = tuple[Tensor, Tensor]
"""Parameters [d] and floating buffers [q]."""


@dataclass
class Boundary:
    """The moment between two sessions (or before the first, or after the last).

    Attributes:
        session: 0-based number of the session that begins (in ``start``) or has ended (in ``end``).
        pilot: number of pilot sessions P.
        w, b: current model. w0, b0: the run's first model.
        devices: ids of the clients of that session.
        store: named tensors the initialiser keeps; saved with the run.
    """

    session: int
    pilot: int
    w: Tensor
    b: Tensor
    w0: Tensor
    b0: Tensor
    devices: list[int]
    store: dict[str, Tensor]


class InitialiserSettings(PluginSettings):
    """Settings every initialiser has."""

    post_pilot_start: Literal["carry", "reset"] = Field(
        "carry", description="first session after the pilot: go on from the current model, or from the first one"
    )


class Initialiser(Plugin):
    """Chooses the model a session starts from.

    Pilot sessions and the first session after them are the same for every initialiser; they differ from session P + 2 on
    (1-based; dynamic-initialisation paper, Algorithm 1).
    """

    Settings: ClassVar[type[PluginSettings]] = InitialiserSettings

    def start(self, s: Boundary) -> Start:
        """Model that session ``s.session`` starts from."""
        if s.session == 0:
            return s.w0, s.b0
        if s.session < s.pilot:
            return s.w, s.b
        if s.session == s.pilot:
            return (s.w, s.b) if self.settings.post_pilot_start == "carry" else (s.w0, s.b0)
        return self.construct(s)

    @abstractmethod
    def construct(self, s: Boundary) -> Start:
        """Model of a session after the first post-pilot one."""

    def end(self, s: Boundary) -> None:
        """Called with the final model of every session."""
