"""Verification of run directories: every file against the marks that the run left of it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fedtide.core.errors import SettingsError
from fedtide.core.storage.files import short_hash
from fedtide.core.storage.locks import claimed, is_held
from fedtide.records.files.marks import problems
from fedtide.records.files.states import generations, read_state_header, remove_states
from fedtide.records.run_directory import ENVIRONMENT, LOGGERS, RunDirectory, read_hashed, read_json

_SIGNS = ("settings.json", "manifest.json", "history.csv", "summary.json", "state")
"""Any of these makes a folder a run directory, even if most of it is lost."""


@dataclass(frozen=True)
class Checked:
    """What was found in a run directory.

    Attributes:
        name: of the folder. state: ``intact``, ``unfinished`` (and intact so far), ``running`` (a process is working on it, so
            it was not verified) or ``damaged``.
        problems: one line each; not empty if damaged.
    """

    name: str
    state: str
    problems: tuple[str, ...] = ()


def check(runs: Path) -> Iterator[Checked]:
    """Verify all run directories of a folder.

    Raises:
        SettingsError: there are none.
    """
    yield from map(check_run, run_directories(runs))


def run_directories(runs: Path) -> list[Path]:
    """All run directories of a folder, by name; a SettingsError if there are none."""
    found = sorted(path for path in runs.iterdir() if path.is_dir()) if runs.is_dir() else []
    folders = [path for path in found if any((path / name).exists() for name in _SIGNS)]
    if not folders:
        raise SettingsError(f"{runs}: no run directories in this folder")
    return folders


def check_run(path: Path) -> Checked:
    """Verify one run directory; nothing in it is changed."""
    if is_held(path):
        return Checked(path.name, "running")
    found: list[str] = []
    for verify in (_manifest, _records, _states):
        try:
            found += verify(RunDirectory(path))
        except SettingsError as error:
            found.append(str(error))
    ended = (path / "summary.json").exists()
    state = "damaged" if found else "intact" if ended else "unfinished"
    return Checked(path.name, state, tuple(dict.fromkeys(found)))


def _manifest(directory: RunDirectory) -> list[str]:
    """Manifest and settings; a process killed before the first round may have left neither."""
    manifest, settings = read_hashed(directory.path / "manifest.json"), read_json(directory.path / "settings.json")
    if manifest and settings is not None and manifest.get("settings") != short_hash(settings):
        return ["settings.json was changed"]
    found = {"manifest.json": manifest, "settings.json": settings}
    begun = (directory.path / "history.csv").exists() or generations(directory.state) or directory.summary() is not None
    return [f"{name} is missing" for name, values in found.items() if values is None] if begun else []


def _records(directory: RunDirectory) -> list[str]:
    """All files of a run that has ended; of any other, rounds without a gap; what its loggers have."""
    for name in (LOGGERS, ENVIRONMENT):
        read_hashed(directory.path / name)
    if directory.summary() is None:
        directory.history()
    lost = ["summary.json is missing"] if directory.has_lost_summary else []
    return lost + problems(directory.path, directory.marks())


def _states(directory: RunDirectory) -> list[str]:
    """The saved states, and the records that the newest one continues."""
    owner = (read_json(directory.path / "manifest.json") or {}).get("run_key", "")
    headers = {path: read_state_header(path, owner) for path in generations(directory.state)}
    damaged = [f"{path.name} is damaged" for path, header in headers.items() if header is None]
    whole = [header for header in headers.values() if header is not None]
    if whole and directory.summary() is None:
        damaged += directory.lost(whole[0]["records"])
    return damaged


def free_states(directory: RunDirectory) -> int:
    """Remove the saved states of a run that is complete and intact, and that no other process works on; the bytes freed."""
    with claimed(directory.path) as free:
        summary = directory.summary() if free else None
        if summary is None or summary["state"] != "complete" or problems(directory.path, directory.marks()):
            return 0
        return remove_states(directory.state)
