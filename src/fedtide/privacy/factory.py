"""How an exchange of label histograms is chosen."""

from __future__ import annotations

from typing import Literal

from fedtide.privacy import he, masked, plain
from fedtide.privacy.base import Histograms

Way = Literal["plain", "masked", "he"]


def histograms(way: Way) -> Histograms:
    """The exchange of a name.

    Raises:
        SettingsError: it needs a package that is not installed.
    """
    ways: dict[Way, type[Histograms]] = {"plain": plain.Exchange, "masked": masked.Exchange, "he": he.Exchange}
    return ways[way]()
