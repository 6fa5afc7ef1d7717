"""DynamicFL's names of exchanges: a, a-g, a*."""

from __future__ import annotations

import re
from typing import NamedTuple

from fedtide.core.errors import SettingsError

LETTERS = {"a": 1, "b": 4, "c": 16, "d": 32, "e": 64, "f": 128, "g": 256}
_INTERVAL = r"[a-g]|[1-9]\d*"
_NAMED = re.compile(rf"(?P<high>{_INTERVAL})(?:-(?P<low>{_INTERVAL})|(?P<star>\*))?")


class Notation(NamedTuple):
    """Intervals in local steps: of the group, of the others, and whether the group alone trains."""

    high: int
    low: int
    star: bool


def read(name: str) -> Notation:
    """``x``: all clients at interval x; ``x-y``: the group at x, the others at y >= x; ``x*``: the group alone, at x."""
    parts = _NAMED.fullmatch(name)
    if parts is None:
        raise SettingsError(f"{name!r} should be like a, a-g or a* with letters a to g or numbers of steps")
    high, low = (int(LETTERS.get(interval, interval)) for interval in (parts["high"], parts["low"] or parts["high"]))
    if high > low:
        raise SettingsError(f"{name!r}: the group's interval comes first and is the shorter one")
    return Notation(high, low, bool(parts["star"]))
