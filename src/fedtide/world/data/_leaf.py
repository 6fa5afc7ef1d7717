"""The JSON files of the LEAF benchmark (Caldas et al. 2018): samples by user."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from fedtide.core.errors import SettingsError


class User(NamedTuple):
    """What a file holds of one user: ``x`` and ``y`` are lists of one length, at least 1."""

    name: str
    x: list[Any]
    y: list[Any]


def read_users(path: Path) -> Iterator[User]:
    """The users of a file, in its order.

    Raises:
        SettingsError: the file is not one of LEAF's; the message names the user.
    """
    content = _content(path)
    names, data = content["users"], content["user_data"]
    counts = content.get("num_samples", [None] * len(names))
    if not isinstance(counts, list) or len(counts) != len(names):
        raise _refusal(path, f"{len(names)} users, but num_samples is not a list of as many numbers")
    seen = set[str]()
    for place, (name, count) in enumerate(zip(names, counts, strict=True)):
        if not isinstance(name, str) or not name.strip():
            raise _refusal(path, f"user {place} has no name")
        if name in seen:
            raise _refusal(path, f"duplicate user {name!r}")
        seen.add(name)
        samples = data.get(name)
        if not isinstance(samples, dict) or not all(isinstance(samples.get(key), list) for key in ("x", "y")):
            raise _refusal(path, f"user {name!r} has no lists x and y in user_data")
        x, y = samples["x"], samples["y"]
        if not len(x) == len(y) == (len(x) if count is None else count) or not x:
            raise _refusal(
                path, f"user {name!r} has {len(x)} x, {len(y)} y and num_samples {count}; all must be equal and above 0"
            )
        yield User(name, x, y)


def _content(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise _refusal(path, " ".join(str(error).split())) from None
    for key, kind in (("users", list), ("user_data", dict)):
        if not isinstance(content, dict) or not isinstance(content.get(key), kind):
            raise _refusal(path, f"no {kind.__name__} {key!r}")
    return content  # type: ignore[no-any-return]


def _refusal(path: Path, problem: str) -> SettingsError:
    return SettingsError(f"{path}: not a LEAF file ({problem}); replace it")
