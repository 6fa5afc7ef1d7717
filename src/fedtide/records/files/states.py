"""Files of saved states: their names, integrity and owners."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from fedtide.core.errors import SettingsError
from fedtide.core.storage.files import sync
from fedtide.core.storage.sealed import peek_header, read_header
from fedtide.records.files.marks import problems


def state_name(round_: object) -> str:
    """Name of the state after a round."""
    return f"state-{round_!s:0>8}.pt"


def log_name(round_: object) -> str:
    """Name of a log of rows that was started after a round."""
    return f"rows-{round_!s:0>8}.npys"


def generations(folder: Path) -> list[Path]:
    """Saved states, newest first."""
    return sorted(folder.glob("state-*.pt"), reverse=True)


def state_files(folder: Path) -> list[Path]:
    """All saved states, then all logs: removed in this order, a state never names a log that is gone."""
    return [*generations(folder), *sorted(folder.glob("rows-*.npys"))]


def sweep(folder: Path) -> None:
    """Remove logs that no state names: a process was killed before the state was written, or before it dropped the log."""
    logs = list(folder.glob("rows-*.npys"))  # before the states, one of which may come meanwhile
    named = {name for path in generations(folder) for name in (peek_header(path) or {}).get("rows", ())}
    for path in logs:
        if path.name not in named:
            path.unlink(missing_ok=True)


def remove_states(folder: Path) -> int:
    """Remove the saved states of a run that is complete; the bytes freed. Under the run's lock."""
    found = state_files(folder)
    freed = 0
    for path in found:
        with suppress(FileNotFoundError):  # a process that finds the run complete sweeps it, too
            size = path.stat().st_size
            path.unlink()
            freed += size
    if found:
        sync(folder)  # or a search, which asks for no complete trial again, would find them after a power loss
    return freed


def read_state_header(path: Path, owner: str) -> dict[str, Any] | None:
    """The header of a saved state, ``None`` if it, or a log of rows that it names, is damaged.

    ``owner``, ``round``, ``records`` (marks of the files that it continues) and ``rows`` (marks of the logs beside it).

    Raises:
        SettingsError: it belongs to another owner than the run of this key, or to another round than its name says.
    """
    header = read_header(path)
    if header is not None and (header.get("owner") != owner or path.name != state_name(header.get("round"))):
        raise SettingsError(
            f"{path}: this checkpoint belongs to {header.get('owner')} after round {header.get('round')}, but its file name or "
            f"its run ({owner}) differs; move it, or delete the run directory to start the run again"
        )
    if header is None or "rows" not in header or problems(path.parent, header["rows"], grown=True):
        return None
    return header
