"""Exit statuses and one-line errors of the commands."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable
from typing import Any

import typer

from fedtide.cli.reporter import log
from fedtide.core.errors import SettingsError


def guarded(function: Callable[[], None]) -> None:
    """Call an entry point. Errors are one line; exit status 2 for bad input, 1 for a failing disk, 130 for Ctrl-C."""
    logging.getLogger("mlflow").setLevel(logging.ERROR)
    try:
        function()
    except SettingsError as error:
        print(f"fedtide: {error}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        print(f"fedtide: {error}", file=sys.stderr)
        sys.exit(1)
    except typer.Exit as request:
        sys.exit(request.exit_code)
    except KeyboardInterrupt:
        print("fedtide: interrupted", file=sys.stderr)
        sys.exit(130)


def exit_with(summary: dict[str, Any]) -> None:
    """Exit with the status of a run: 0 complete, 1 diverged, 128 + signal if interrupted."""
    if summary["state"] == "interrupted":
        log("interrupted; the state is saved, the same command continues from there")
        raise typer.Exit(128 + int(summary.get("signal", signal.SIGINT)))
    if summary["state"] == "diverged":
        log(f"{summary.get('message', 'diverged')}; its history is kept")
        raise typer.Exit(1)
