"""Errors a user can cause, reported in one line."""

import re
from collections.abc import Callable, Iterable, Mapping
from difflib import SequenceMatcher
from itertools import takewhile
from typing import Any

from pydantic import BaseModel, ValidationError

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
    return f"{problem}{meant(word, options)} (known: {', '.join(options)})" if options else problem


def meant(word: str, known: Iterable[str]) -> str:
    """``; did you mean 'fedavg'?``, empty if no known word is near: as :func:`nearest`."""

    def likeness(option: str) -> tuple[float, int, str]:
        """Of equally similar words the one that begins as ``word`` does is meant: `fedaverage` is no `fedvra`."""
        a, b = (each.lower().replace("-", "_") for each in (option, word))
        begins = sum(1 for _ in takewhile(lambda both: both[0] == both[1], zip(a, b, strict=False)))
        return SequenceMatcher(None, a, b).ratio(), begins, option

    options, initials = list(known), "".join(part[:1] for part in word.split("_"))
    near = initials if initials in options else max(options, key=likeness, default="")
    enough = near and (near == initials or likeness(near)[0] >= (_NEAR if len(word) > 3 else _NEAR_SHORT))
    return f"; did you mean {near!r}?" if enough else ""


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

_WORDS = {"None": "null", "True": "true", "False": "false"}


def one_line(
    error: ValidationError,
    raw: Any,
    source: str | Callable[[Place], str],
    group: Callable[[Place], type[BaseModel] | None],
) -> str:
    """The first problem of a validation error of ``raw`` as one line: source, dotted key, value, what is allowed.

    ``source`` may be a function of the problem's path; ``group`` finds the settings at a path.
    """
    problems = [(_place(raw, problem, group), problem) for problem in error.errors(include_url=False)]
    place, first = problems[0]
    key, word = ".".join(map(str, place)), str(place[-1]) if place else ""
    fields = getattr(group(place[:-1]), "model_fields", {})
    source = source if isinstance(source, str) else source(place)
    others = len({other for other, _ in problems} - {place})
    more = f" (and {others} more)" if others else ""
    if first["type"] == "extra_forbidden":
        return f"{source}: {nearest(f'unknown key {shortened(key)!r}', word, fields)}{more}"
    texts = [each["msg"].removeprefix("Value error, ") for at, each in problems if at == place]
    message = ", or ".join(texts).replace(", or Input should be", ", or").replace("Input should", "should")
    value = first.get("input")
    zero = re.search(r"\b0(:| disables| for)[^;]*", (word in fields and fields[word].description) or "")
    if value is None and zero:
        message += f"; {zero[0]}"
    shown = _WORDS.get(text := repr(value), shortened(text))
    shown = "" if isinstance(value, dict | list) or first["type"] == "value_error" else f" = {shown}"
    return " ".join(f"{source}: {f'{shortened(key)}{shown}: ' if key else ''}{message}{more}".split())


def _place(raw: Any, problem: Mapping[str, Any], group: Callable[[Place], type[BaseModel] | None]) -> Place:
    """The path of a problem by keys and fields of ``raw`` and positions in its lists, without the types pydantic has tried."""
    kept: list[int | str] = []
    for number, part in enumerate(problem["loc"], start=1):
        last = number == len(problem["loc"]) and problem["type"] in ("missing", "extra_forbidden")
        if isinstance(raw, Mapping):
            last = last or (part not in raw and part in getattr(group(tuple(kept)), "model_fields", {}))  # its default
            known = part in raw
        else:
            known = isinstance(raw, list | tuple) and isinstance(part, int)
        if known or last:
            kept.append(part)
            raw = None if last else raw[part]
    return tuple(kept)
