"""Exit statuses and one-line errors of the commands."""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import typer

from fedtide.cli.reporter import log
from fedtide.core.discovery.faults import TRACEBACK, PluginCrash
from fedtide.core.errors import SettingsError
from fedtide.core.extras import not_installed
from fedtide.core.plugins import naming_plugins
from fedtide.runs.jobs.signals import HANGUP, handled, leave_terminal

if TYPE_CHECKING:
    from fedtide.records.summary import Summary
    from fedtide.studies.tuning.study import TuneResult


class Interrupted(BaseException):
    """Ctrl-C, SIGTERM or SIGHUP. Not KeyboardInterrupt, after which typer would exit silently."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def guarded(function: Callable[[], None]) -> None:
    """Call an entry point. Errors and interruptions are one line.

    Exit status 2 for bad input, 1 for a failing disk or plug-in, 128 + signal for Ctrl-C, SIGTERM and SIGHUP. With
    ``FEDTIDE_TRACEBACK`` in the environment the traceback of an error comes before its line.
    """
    logging.getLogger("mlflow").setLevel(logging.ERROR)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in ("strict", "surrogateescape"):
        # As on standard error, since a pipe may not take every character; some terminals refuse it.
        with suppress(OSError):
            sys.stdout.reconfigure(errors="backslashreplace")
    with _signals_raised() as received:
        try:
            with naming_plugins():
                function()
        except BaseException as error:
            # Also an error that a library has made of the interruption, for instance while it was imported.
            if received:
                print("fedtide: interrupted", file=sys.stderr)
                sys.exit(128 + received[0])
            _exit_for(error)


def _exit_for(error: BaseException) -> None:
    """Exit for an expected error; raise others again."""
    if isinstance(error, MemoryError) or "can't start new thread" in str(error) or "Resource temporarily" in str(error):
        error = OSError(f"there is not enough memory, or no further thread is allowed ({error})")
    if line := not_installed(error, "this"):
        error = SettingsError(line)
    if isinstance(error, SettingsError | PluginCrash | OSError):
        if os.environ.get(TRACEBACK):
            traceback.print_exception(error)
        hint = f"; {TRACEBACK}=1 shows the whole traceback" if isinstance(error, PluginCrash) else ""
        print(f"fedtide: {error}{hint}", file=sys.stderr)
        sys.exit(2 if isinstance(error, SettingsError) else 1)
    if isinstance(error, typer.Exit):
        sys.exit(error.exit_code)
    if isinstance(error, KeyboardInterrupt):
        print("fedtide: interrupted", file=sys.stderr)
        sys.exit(130)
    raise error


@contextmanager
def _signals_raised() -> Iterator[list[int]]:
    """Ctrl-C, SIGTERM and SIGHUP raise :class:`Interrupted`, and are listed; a second one ends the process at once."""
    received: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if number == HANGUP:
            leave_terminal()
        if received:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        received.append(number)
        raise Interrupted(number)

    with handled(handle):
        yield received


def exit_with(summary: Summary) -> None:
    """Exit with the status of a run: 0 complete, 1 diverged, 128 + signal if interrupted."""
    if summary["state"] == "interrupted":
        _exit_interrupted(summary.get("signal", signal.SIGINT))
    if summary["state"] == "pruned":
        log(f"a callback has stopped the run after round {summary['rounds']}; it is not resumed")
    if summary["state"] == "diverged":
        log(f"{summary.get('message', 'diverged')}; its history is kept")
        raise typer.Exit(1)


def exit_with_all(summaries: Sequence[Summary], stopped: int | None, allow_failures: bool) -> None:
    """List the runs that diverged or failed, and exit with the status of all runs.

    0 if all are complete, or failures are allowed, otherwise 1; 128 + signal if a signal has stopped them.
    """
    from fedtide.runs.compare import unsuccessful

    lines = unsuccessful(summaries)
    _list(f"{len(lines)} of {len(summaries)} runs diverged or failed", lines)
    if stopped is not None:
        _exit_interrupted(stopped)
    if lines and not allow_failures:
        raise typer.Exit(1)


def exit_with_search(result: TuneResult, show: Callable[[str], None] = print) -> None:
    """Show the result of a search, list the trials that failed, and exit with its status: 0, 1 or 128 + signal."""
    if result.stopped is None:
        show(result.text)
    failed, trials = len(result.failed), result.trials + len(result.failed)
    _list(f"{failed} of {trials} trials failed; re-run the same command to retry them", result.failed)
    if result.stopped is not None:
        log(f"interrupted; {result.text}")
        raise typer.Exit(128 + result.stopped)
    if result.failed:
        raise typer.Exit(1)


def _list(title: str, lines: Sequence[str]) -> None:
    if lines:
        log(f"{title}:")
    for line in lines:
        log(f"  {line}")


def _exit_interrupted(number: int) -> NoReturn:
    log("Interrupted. Re-run the same command to resume.")
    raise typer.Exit(128 + int(number))
