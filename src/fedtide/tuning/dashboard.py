"""Optuna's dashboard of a search, on this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fedtide.core import extras
from fedtide.core.errors import SettingsError
from fedtide.tuning.journal import SUFFIX, read_journal


def newest_journal(folder: Path) -> Path:
    """The journal in a folder that was last written; a SettingsError if there is none."""
    journals = sorted(folder.glob(f"*{SUFFIX}"), key=lambda path: path.stat().st_mtime_ns)
    if not journals:
        raise SettingsError(f"{folder}: no search here; run `fedtide tune`, or name its folder with --out")
    return journals[-1]


def serve_dashboard(folder: Path, port: int, log: Callable[[str], None]) -> None:
    """Serve the dashboard of the newest search in a folder on the loopback interface, until interrupted.

    The search may be running: the dashboard reads its journal again and again.

    Raises:
        SettingsError: optuna-dashboard is not installed, there is no search, or its journal is damaged.
        OSError: the port is taken.
    """
    extras.require("tuning", "--dashboard", "optuna_dashboard")
    journal = newest_journal(folder)
    storage = read_journal(journal)
    from optuna_dashboard import run_server

    log(f"{journal.stem} on http://127.0.0.1:{port}  (Ctrl-C to stop)")
    run_server(storage, host="127.0.0.1", port=port)
