"""Protocols by name."""

from __future__ import annotations

from typing import Literal

from fedtide.methods.privacy import he, masked, plain
from fedtide.methods.privacy.histograms import Histograms

Protocol = Literal["plain", "masked", "he"]


def histograms(protocol: Protocol) -> Histograms:
    """How label histograms are summed under a protocol.

    Raises:
        SettingsError: it needs a package that is not installed.
    """
    known: dict[Protocol, type[Histograms]] = {"plain": plain.Plain, "masked": masked.Masked, "he": he.Encrypted}
    return known[protocol]()
