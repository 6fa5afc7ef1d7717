"""What names something (an owner, a class, a category) is text: the same from every file and in every type."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from fedtide.core.array_types import Ints

if TYPE_CHECKING:
    import pandas as pd

_WHOLE = re.compile(r"-?(0)\.0*|(-?[1-9]\d*)\.0*|(\d{4}-\d\d-\d\d)[ T]00:00:00(?:\.0+)?")
_NUMBER = re.compile(r"[-+]?(\d{1,40}(\.\d{0,40})?|\.\d{1,40})([eE][-+]?\d{1,3})?")
_EXACT = Context(prec=100)


def name_of(value: Any) -> str:
    """The name that a value is, which is not missing: its text as it is written, in NFC, without blanks around it.

    A whole number is the same with a decimal point (``7.0`` is ``7``, but ``007`` is not), since programs write integers as
    floats where a number is missing; so is a day with the time 00:00:00; and ``true`` is ``True``.
    """
    text = unicodedata.normalize("NFC", str(value))
    text = text.strip() or text  # a blank is a label of LEAF's texts
    if text.lower() in ("true", "false"):
        return text.capitalize()
    whole = _WHOLE.fullmatch(text)
    return whole[whole.lastindex or 0] if whole else text


def names_in(values: pd.Series[Any]) -> tuple[Ints, list[str]]:
    """Positions [n] in a list of names, -1 where a value is missing, and the list, in which a name may be more than once."""
    import pandas as pd

    codes, found = pd.factorize(values)
    exact: Any = found.to_numpy() if found.dtype.kind == "f" else found  # 0.1 of 32 bits is 0.1
    return codes.astype(np.int64), [name_of(value) for value in exact]


def positions(names: Sequence[str], known: Sequence[str]) -> list[int]:
    """The place of each name in ``known``, -1 if it is none of them.

    A name that is none of them is the only equal number among them, if there is one: frames of pandas hold ``07`` as 7.
    """
    exact = {name: place for place, name in enumerate(known)}
    alike: dict[str, int] = {}
    for place, name in enumerate(known):
        key = as_number(name)
        alike[key] = -1 if key in alike else place
    found = {name: exact[name] if name in exact else alike.get(as_number(name), -1) for name in set(names)}
    return [found[name] for name in names]


def as_number(name: str) -> str:
    """A name that is a number, in its shortest form without exponent; others, and truth values, as :func:`name_of`."""
    name = name_of(name)
    if _NUMBER.fullmatch(name):
        return format(_EXACT.plus(Decimal(name).normalize(_EXACT)), "f")  # plus: -0 is 0
    return name


def near_equal(counts: Counter[str]) -> list[str]:
    """Groups of names, with their counts, that differ only in case, in blanks or in a final full stop."""
    groups: dict[str, list[str]] = {}
    for name in sorted(counts):
        groups.setdefault("".join(name.casefold().split()).rstrip("."), []).append(name)
    return [
        " and ".join(f"{name!r} ({counts[name]:,})" for name in group) for group in groups.values() if len(group) > 1
    ]
