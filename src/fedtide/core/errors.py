"""Errors a user can cause, reported in one line."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Any

from pydantic import ValidationError

_NEAR = 0.5
"""Smallest similarity, from 0 to 1, of a word and the one that may have been meant."""


class SettingsError(ValueError):
    """Bad input: one line that names the key, the value and what is allowed. The command line exits with 2."""


class Diverged(RuntimeError):
    """Training produced a non-finite or exploding loss or model; ``record`` is that of the round, if it was run."""

    def __init__(self, message: str, record: Any = None) -> None:
        super().__init__(message)
        self.record = record


def nearest(problem: str, word: str, known: Iterable[str]) -> str:
    """``problem``, a known word if one is near, and all known words; initials count (``learning_rate`` is ``lr``)."""
    options = sorted(known)
    if not options:
        return problem
    initials = "".join(part[:1] for part in word.split("_"))
    near = [initials] if initials in options else difflib.get_close_matches(word, options, n=1, cutoff=_NEAR)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{problem}{hint} (known: {', '.join(options)})"


def one_line(error: ValidationError, source: str, unknown: Callable[[tuple[int | str, ...]], str]) -> str:
    """The first problem of a validation error as one line: source, dotted key, value, what is allowed.

    ``unknown`` words the problem of a key that does not exist, given its path.
    """
    problems = error.errors(include_url=False)
    first = problems[0]
    key = ".".join(str(part) for part in first["loc"])
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    if first["type"] == "extra_forbidden":
        return f"{source}: {unknown(first['loc'])}{more}"
    message = first["msg"].removeprefix("Value error, ").replace("Input should", "should")
    value = first.get("input")
    shown = "" if isinstance(value, dict | list) or first["type"] == "value_error" else f" = {value!r}"
    place = f"{key}{shown}: " if key else ""
    return " ".join(f"{source}: {place}{message}{more}".split())
