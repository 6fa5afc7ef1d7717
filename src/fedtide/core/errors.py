"""Errors a user can cause, reported in one line."""

import difflib
import re
from collections.abc import Callable, Iterable
from typing import Any

from pydantic import ValidationError

_NEAR, _NEAR_SHORT = 0.6, 0.5  # least similarity of a word to the one that was meant; of words up to three letters
_LONG = 120  # most characters of a value that are shown in full
_CREDENTIALS = re.compile(r"(?<=://)[^/\s@]+@")


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
    cutoff = _NEAR if len(word) > 3 else _NEAR_SHORT
    near = [initials] if initials in options else difflib.get_close_matches(word, options, n=1, cutoff=cutoff)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{problem}{hint} (known: {', '.join(options)})"


def without_credentials(text: str) -> str:
    """A text whose URIs have no user and no password, for messages and files.

    >>> without_credentials("--set tracking.uri=https://me:secret@example.org")
    '--set tracking.uri=https://example.org'
    """
    return _CREDENTIALS.sub("", text)


def shortened(text: str) -> str:
    """A text in one line of a readable length: a long one without its middle, a URI without user and password."""
    text = without_credentials(" ".join(text.split()))
    return text if len(text) <= _LONG else f"{text[: _LONG // 2]} ... {text[-_LONG // 4 :]}"


Place = tuple[int | str, ...]


def one_line(error: ValidationError, source: str | Callable[[Place], str], unknown: Callable[[Place], str]) -> str:
    """The first problem of a validation error as one line: source, dotted key, value, what is allowed.

    ``source`` may be a function of the problem's path; ``unknown`` words the problem of a key that does not exist.
    """
    problems = error.errors(include_url=False)
    first = problems[0]
    key = shortened(".".join(str(part) for part in first["loc"]))
    if not isinstance(source, str):
        source = source(first["loc"])
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    if first["type"] == "extra_forbidden":
        return f"{source}: {unknown(first['loc'])}{more}"
    message = first["msg"].removeprefix("Value error, ").replace("Input should", "should")
    value = first.get("input")
    shown = "" if isinstance(value, dict | list) or first["type"] == "value_error" else f" = {shortened(repr(value))}"
    place = f"{key}{shown}: " if key else ""
    return " ".join(f"{source}: {place}{message}{more}".split())
