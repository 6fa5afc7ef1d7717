"""The record of a search: Optuna's journal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedtide.core.errors import SettingsError
from fedtide.core.files import write_bytes

SUFFIX = ".journal"


def open_journal(path: Path) -> Any:
    """:func:`read_journal`, without the stale lock and torn last line that a killed process may leave."""
    for lock in path.parent.glob(f"{path.name}.lock*"):  # renamed before it is removed
        lock.unlink(missing_ok=True)
    content = path.read_bytes() if path.exists() else b""
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        write_bytes(path, whole)
    return read_journal(path)


def read_journal(path: Path) -> Any:
    """Optuna's journal as it is, also while a search is writing it: a last line without its end is not read yet.

    Raises:
        SettingsError: a line is damaged, or lines do not fit together.
    """
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    for number, line in enumerate(lines, 1):
        try:
            json.loads(line)
        except ValueError:  # also bytes that are no text
            raise _damaged(path, f"line {number}") from None
    try:
        return JournalStorage(JournalFileBackend(str(path)))
    except (AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:  # of lines that do not fit
        raise _damaged(path, type(error).__name__) from None


def _damaged(path: Path, where: str) -> SettingsError:
    return SettingsError(
        f"{path}: the record of the search is damaged ({where}); delete this file to search again, finished runs are reused"
    )
