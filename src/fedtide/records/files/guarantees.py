"""What a run with noise guarantees each client, known before the first round: ``privacy.csv``, a row per client."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedtide.core.storage.files import write_text

PRIVACY = "privacy.csv"

COLUMNS = [
    *("client", "arrival", "departure", "present", "participations", "separation", "sensitivity"),
    *("epsilon", "delta"),
]
"""``arrival``, ``departure``: first and last round present, from 1. ``present``: rounds, and in how many of them it takes part,
at least how many apart. ``sensitivity``: of all its updates, in clip bounds; empty for Poisson samples."""


def write_guarantees(folder: Path, columns: Mapping[str, Sequence[float]]) -> None:
    """Write the columns [N] of all clients; the same columns give the same bytes."""
    rows = zip(*(columns[name] for name in COLUMNS[1:]), strict=True)
    lines = [",".join([str(client), *map(_cell, row)]) for client, row in enumerate(rows)]
    write_text(folder / PRIVACY, "\n".join([",".join(COLUMNS), *lines, ""]), durable=True)


def _cell(value: float) -> str:
    return "" if value != value else str(value)  # NaN
