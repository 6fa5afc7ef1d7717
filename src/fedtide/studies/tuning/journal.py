"""The record of a search: Optuna's journal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedtide.core.errors import SettingsError
from fedtide.core.storage.files import write_bytes

SUFFIX = ".journal"


def open_journal(path: Path) -> Any:
    """Optuna's journal, without the stale lock and the torn last line that a killed process may leave.

    Raises:
        SettingsError: a line is damaged, or lines do not fit together.
    """
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    for lock in path.parent.glob(f"{path.name}.lock*"):  # renamed before it is removed
        lock.unlink(missing_ok=True)
    content = path.read_bytes() if path.exists() else b""
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        write_bytes(path, whole)
    try:
        return JournalStorage(JournalFileBackend(str(path)))
    except (AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise SettingsError(
            f"{path}: the study journal is damaged ({type(error).__name__}); delete this file to repeat the study; "
            "finished runs are reused"
        ) from None
