"""Exit statuses and one-line errors of the commands."""

from __future__ import annotations

import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

import typer

from fedtide.cli.reporter import log
from fedtide.core.errors import SettingsError
from fedtide.core.faults import TRACEBACK, PluginCrash
from fedtide.core.plugins import naming_plugins


def guarded(function: Callable[[], None]) -> None:
    """Call an entry point. Errors are one line; exit status 2 for bad input, 1 for a failing disk or plug-in, 130 for Ctrl-C.

    With ``FEDTIDE_TRACEBACK`` in the environment the traceback of an error comes before its line.
    """
    logging.getLogger("mlflow").setLevel(logging.ERROR)
    try:
        with naming_plugins():
            function()
    except SettingsError as error:
        _show_traceback(error)
        print(f"fedtide: {error}", file=sys.stderr)
        sys.exit(2)
    except PluginCrash as error:
        _show_traceback(error)
        print(f"fedtide: {error}; {TRACEBACK}=1 shows the whole traceback", file=sys.stderr)
        sys.exit(1)
    except OSError as error:
        _show_traceback(error)
        print(f"fedtide: {error}", file=sys.stderr)
        sys.exit(1)
    except typer.Exit as request:
        sys.exit(request.exit_code)
    except KeyboardInterrupt:
        print("fedtide: interrupted", file=sys.stderr)
        sys.exit(130)


def _show_traceback(error: Exception) -> None:
    if os.environ.get(TRACEBACK):
        traceback.print_exception(error)


def exit_with(summary: dict[str, Any]) -> None:
    """Exit with the status of a run: 0 complete, 1 diverged, 128 + signal if interrupted."""
    if summary["state"] == "interrupted":
        log("interrupted; the state is saved, the same command continues from there")
        raise typer.Exit(128 + int(summary.get("signal", signal.SIGINT)))
    if summary["state"] == "diverged":
        log(f"{summary.get('message', 'diverged')}; its history is kept")
        raise typer.Exit(1)
