"""Saved states of complete runs, which serve to repair their records alone: removed, unless they are to be kept."""

from collections.abc import Callable

from fedtide.core.storage.locks import Lock
from fedtide.records.files.marks import different
from fedtide.records.files.states import remove_states, state_files
from fedtide.records.run_directory import RunDirectory
from fedtide.settings.run import RunSettings


def free_states(directory: RunDirectory) -> int:
    """Remove the saved states of a run that is complete and intact, and that no other process works on; the bytes freed.

    Raises:
        SettingsError: its summary is damaged. OSError: the folder cannot be written.
    """
    lock = Lock(directory.path / ".lock")
    if not state_files(directory.state) or not lock.acquire():
        return 0
    try:
        summary = directory.summary()
        complete = summary is not None and summary["state"] == "complete"
        if not complete or different(directory.path, directory.marks()):
            return 0
        return remove_states(directory.state)
    finally:
        lock.release()


def free_unless_kept(directory: RunDirectory, settings: RunSettings, log: Callable[[str], None]) -> None:
    """:func:`free_states` of a run that was found finished: the process that finished it was killed, or was to keep them."""
    if settings.checkpoint.keep_finished:
        return
    try:
        freed = free_states(directory)
    except OSError as error:  # somebody else's folder: its records can be used all the same
        log(f"{directory.path.name}: its checkpoints cannot be removed ({error.strerror})")
        return
    if freed:
        log(f"{directory.path.name}: {freed:,} bytes of checkpoints removed (run complete)")
