"""Checkpoints of complete runs, which serve to repair their records alone: removed, unless they are to be kept."""

from collections.abc import Callable

from fedtide.core.storage.locks import Lock
from fedtide.records.files.marks import different
from fedtide.records.files.states import remove_states, state_files
from fedtide.records.run_directory import RunDirectory
from fedtide.settings.run import RunSettings


def free_unless_kept(directory: RunDirectory, settings: RunSettings, log: Callable[[str], None]) -> None:
    """Remove the checkpoints of a run that was found complete and intact, unless a process works on it.

    The process that completed it was killed before it did so, or was to keep them.
    """
    if settings.checkpoint.keep_finished or not state_files(directory.state):
        return
    try:
        lock = Lock(directory.path / ".lock")
        if not lock.acquire():
            return
        try:
            summary = directory.summary()
            if summary is None or summary["state"] != "complete" or different(directory.path, directory.marks()):
                return
            freed = remove_states(directory.state)
        finally:
            lock.release()
    except OSError as error:  # somebody else's folder: its records can be used all the same
        log(f"{directory.path.name}: its checkpoints cannot be removed ({error.strerror})")
    else:
        log(f"{directory.path.name}: {freed:,} bytes of checkpoints removed (run complete)")
