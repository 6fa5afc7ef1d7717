"""Saved states: two generations, each bound to its run and to the records that it continues."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fedtide.core.errors import SettingsError
from fedtide.core.sealed import read_content, sealing
from fedtide.tracking.marks import Marks
from fedtide.tracking.states import generations, read_state_header, state_name

__all__ = ["Saved", "generations", "load", "save"]


@dataclass(frozen=True)
class Saved:
    """A state on disk.

    Attributes:
        owner: key of the run, or of the shared pilot, that it belongs to.
        round: number of rounds done.
        records: marks of the record files that hold these rounds.
        values: containers of tensors and numbers.
    """

    owner: str
    round: int
    records: Marks
    values: dict[str, Any]


def save(folder: Path, saved: Saved, keep: int = 2) -> None:
    """Write ``state-<round>.pt`` and drop all but the ``keep`` newest generations."""
    folder.mkdir(parents=True, exist_ok=True)
    header = {"owner": saved.owner, "round": saved.round, "records": dict(saved.records)}
    with sealing(folder / state_name(saved.round), header) as stream:
        torch.save(saved.values, stream)  # streamed in pieces: memories may exceed main memory
    for old in generations(folder)[keep:]:
        old.unlink()


def load(
    folder: Path, owner: str, lost: Callable[[Marks], Sequence[str]] = lambda _: ()
) -> tuple[Saved | None, dict[Path, str]]:
    """The newest state that can be continued; ``None`` if nothing was ever saved.

    Args:
        folder: of the states.
        owner: key of the run or pilot.
        lost: what the record files lack of what a state continues.

    Returns:
        The state, and what is wrong with each newer one.

    Raises:
        SettingsError: a state belongs to another run or was not saved by fedtide; or states exist, but none can be
            continued: a run never silently starts over.
    """
    skipped: dict[Path, str] = {}
    for path in generations(folder):
        header = read_state_header(path, owner)
        if header is None:
            skipped[path] = f"{path.name} is damaged"
        elif problems := lost(header["records"]):
            skipped[path] = f"{path.name} does not fit, {', '.join(problems)}"
        else:
            return Saved(owner, header["round"], header["records"], _values(path)), skipped
    if skipped:
        raise SettingsError(
            f"{folder}: no saved state can be continued ({'; '.join(skipped.values())}); put the files back, or delete "
            "the run's folder to start the run again"
        )
    return None, {}


def _values(path: Path) -> dict[str, Any]:
    """Only containers, tensors and numbers: anything else could run code."""
    try:
        values: dict[str, Any] = torch.load(io.BytesIO(read_content(path)), map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, EOFError, KeyError, ValueError, RuntimeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise SettingsError(f"{path}: not a state that fedtide saved; delete it ({reason})") from None
    return values
