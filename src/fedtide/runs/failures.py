"""The traceback of a run that raised an exception: kept in its directory, named in one line."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace

from fedtide.core.errors import SettingsError
from fedtide.core.storage.files import write_text
from fedtide.records.run_directory import RunDirectory
from fedtide.runs.jobs.jobs import Failure


@contextlib.contextmanager
def failure_kept(directory: RunDirectory) -> Iterator[None]:
    """The traceback of an exception goes to ``error.txt``, which is removed when the run continues."""
    directory.error.unlink(missing_ok=True)
    try:
        yield
    except SettingsError:
        raise
    except (Exception, SystemExit):
        with contextlib.suppress(OSError):  # of a full disk, which may be the failure
            write_text(directory.error, traceback.format_exc())
        raise


def with_traceback(failure: Failure, directory: RunDirectory, log: Callable[[str], None]) -> Failure:
    """The failure, with the file of its traceback in the message; it is logged if the run had no directory yet."""
    if not failure.traceback or failure.refused:
        return failure
    if directory.error.is_file():
        return replace(failure, message=f"{failure.message} ({directory.error})")
    log(failure.traceback.rstrip())
    return failure
