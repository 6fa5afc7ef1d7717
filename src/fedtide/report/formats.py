"""Numbers formatted for people."""

import math
from dataclasses import dataclass

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")

NOTHING = "\N{EN DASH}"
"""Shown for a missing value."""


@dataclass(frozen=True)
class Scale:
    """How the values of a score are written: shares in percent, others as they are."""

    share: bool

    @property
    def unit(self) -> str:
        return " %" if self.share else ""

    @property
    def gap(self) -> str:
        """After the heading of differences."""
        return ", points" if self.share else ""

    def heading(self, words: str) -> str:
        return f"{words}, %" if self.share else words

    def value(self, mean: float, spread: float = math.nan, sign: str = "") -> str:
        """A value, or mean and spread, without the unit: ``83.4`` or ``83.4 ± 1.2``."""
        if math.isnan(mean):
            return NOTHING
        factor, digits = (100, ".1f") if self.share else (1, ".4f")
        shown = f"{factor * mean:{sign}{digits}}"
        return shown if math.isnan(spread) else f"{shown} ± {factor * spread:{digits}}"

    def difference(self, value: float, spread: float = math.nan) -> str:
        """A signed difference, or its mean and spread, without the unit."""
        return self.value(value, spread, "+").replace("-", "\N{MINUS SIGN}")

    def goal(self, value: float) -> str:
        """A value to reach, with its unit."""
        return f"{100 * value:.4g} %" if self.share else f"{value:.4g}"


PERCENT = Scale(share=True)
percent = PERCENT.value


def byte_unit(most: float) -> tuple[float, str]:
    """Size in bytes and name of the decimal unit that suits ``most`` bytes."""
    power = min(int(math.log10(most) // 3), len(_UNITS) - 1) if most >= 1 else 0
    return 1000.0**power, _UNITS[power]


def _absent(value: float) -> str:
    """What is written for a missing value, and for what was never reached; empty for a number."""
    return NOTHING if math.isnan(value) else "not reached" if math.isinf(value) else ""


def human_bytes(count: float) -> str:
    """``12.3 MB``, decimal units."""
    if absent := _absent(count):
        return absent
    size, unit = byte_unit(count)
    shown = count / size
    return f"{shown:.0f} {unit}" if shown >= 100 else f"{shown:.3g} {unit}"


def rounds(count: float, spread: float = math.nan) -> str:
    """``41`` or ``41.3 ± 2.1`` rounds."""
    return _absent(count) or (f"{count:g}" if math.isnan(spread) else f"{count:.1f} ± {spread:.1f}")


def seeds(count: float) -> str:
    """``1 seed``, ``3 seeds``."""
    return f"{count:g} seed{'' if count == 1 else 's'}"


def over(shown: str, count: float, planned: float) -> str:
    """A mean over some of the ``planned`` seeds, with their number if it lacks some: ``41.3 (2 seeds)``."""
    return shown if count in (0, planned) else f"{shown} ({seeds(count)})"


def times(factor: float) -> str:
    """``8.0 \N{MULTIPLICATION SIGN}``."""
    if math.isnan(factor):
        return NOTHING
    return "\N{INFINITY}" if math.isinf(factor) else f"{factor:.3g} \N{MULTIPLICATION SIGN}"


def second_unit(most: float) -> tuple[float, str]:
    """Length and name of the unit of time that suits ``most`` seconds."""
    return (1e-3, "ms") if most < 1 else (1.0, "s") if most < 1e4 else (3600.0, "h")


def seconds(count: float) -> str:
    """``27.1 ms``, ``6.89 s`` or ``17,000 s``."""
    return _prefixed(count, "s", largest=0)


def joules(count: float) -> str:
    """``360 mJ`` or ``1.43 kJ``."""
    return _prefixed(count, "J", largest=3)


def _prefixed(value: float, unit: str, largest: int) -> str:
    """Three digits with a suitable prefix, at most that of the ``largest``-th power of 1000."""
    if absent := _absent(value):
        return absent
    power = min(max(math.floor(math.log10(value) / 3), -3), largest) if value > 0 else 0
    shown = value / 1000.0**power
    prefix = {-3: "n", -2: "\N{MICRO SIGN}", -1: "m", 0: "", 1: "k", 2: "M", 3: "G"}[power]
    return f"{shown:,.0f} {prefix}{unit}" if shown >= 100 else f"{shown:.3g} {prefix}{unit}"


def p_value(p: float) -> str:
    """``0.012``, ``< 0.001`` or n/a."""
    if math.isnan(p):
        return "n/a"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
