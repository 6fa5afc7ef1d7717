"""Runs that a rule of ``stop`` has ended before their last round."""

from collections.abc import Iterable
from pathlib import Path

from fedtide.records.run_directory import RunDirectory
from fedtide.records.summary import Summary


def complete(run_dirs: Iterable[Path]) -> dict[Path, Summary]:
    """Summaries of the complete runs."""
    found = {path: RunDirectory(path).summary() for path in run_dirs}
    return {path: summary for path, summary in found.items() if summary and summary["state"] == "complete"}


def shared_rounds(run_dirs: Iterable[Path]) -> int | None:
    """How many rounds all complete runs have, if one of them was stopped early; else None, for all rounds of each."""
    found = complete(run_dirs).values()
    return min(each["rounds"] for each in found) if any("stopped" in each for each in found) else None
