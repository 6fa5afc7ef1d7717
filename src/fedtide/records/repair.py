"""Records into which two processes have written: the lines of one of them, as a mark proves."""

from __future__ import annotations

import hashlib

from fedtide.records.marks import Mark

_KEYS = {"history.csv": 1}
_KEY = 2  # columns: round, and split, client or layer


def restored(name: str, content: bytes, mark: Mark) -> bytes | None:
    """The beginning of a growing file that has this mark, ``None`` if the lines that are there do not give it.

    Of table rows with the same key, and of equal lines of other files, all first ones or all last ones are kept, since one
    process was ahead of the other; rows in the order of the rounds.
    """
    lines = [line for line in content.splitlines(keepends=True) if line.endswith(b"\n")]
    table = name.endswith(".csv")
    head, body = (lines[:1], lines[1:]) if table else ([], lines)
    for backwards in (False, True):
        kept: dict[bytes, bytes] = {}
        for line in reversed(body) if backwards else body:
            key = b",".join(line.split(b",", 2)[: _KEYS.get(name, _KEY)]) if table else line
            kept.setdefault(key, line)
        chosen = list(kept.values())[:: -1 if backwards else 1]
        if table:
            chosen.sort(key=_round)
        beginning = b"".join(head + chosen)[: mark["bytes"]]
        if len(beginning) == mark["bytes"] and hashlib.sha256(beginning).hexdigest() == mark["sha256"]:
            return beginning
    return None


def _round(line: bytes) -> int:
    number = line.partition(b",")[0]
    return int(number) if number.isdigit() else 0
