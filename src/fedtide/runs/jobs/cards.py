"""Graphics cards: every process that executes runs takes a place on one; cards that others use are left alone."""

from __future__ import annotations

import contextlib
import csv
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from fedtide.settings.run import RunSettings

VISIBLE = "CUDA_VISIBLE_DEVICES"  # CUDA's variable: numbers or ids of the cards that a process may use, with commas
_QUERY = ("nvidia-smi", "--query-gpu=index,uuid,memory.used,memory.total", "--format=csv,noheader,nounits")
_OTHERS = 0.05
"""Share of a card's memory: if more is in use, and none of our processes has a place on it, the card is somebody else's."""

_PATIENCE = 30.0  # seconds for the list of cards
_POLL = 1.0  # seconds until a place may have become free
_PLACES = 64  # most places on a card that are looked at


@dataclass(frozen=True)
class Card:
    """A graphics card: its number and unique id as text, its memory and what is used of it in bytes."""

    number: str
    id: str
    used: int
    memory: int


def cards() -> list[Card]:
    """The cards that this process may use, without those that others use; none without NVIDIA's driver."""
    visible = os.environ.get(VISIBLE)
    if shutil.which(_QUERY[0]) is None or visible == "":
        return []
    try:
        listed = subprocess.run(_QUERY, capture_output=True, text=True, timeout=_PATIENCE, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    rows = csv.reader(listed.splitlines(), skipinitialspace=True)
    found = [Card(number, id_, int(used) << 20, int(memory) << 20) for number, id_, used, memory in rows]
    if visible is not None:
        names = visible.split(",")
        found = [card for name in names for card in found if name == card.number or card.id.startswith(name)]
    return [card for card in found if card.used < _OTHERS * card.memory or _is_ours(card)]


def uses_cards(grid: Iterable[RunSettings]) -> bool:
    """Whether runs may be executed on a card."""
    return any(settings.engine.accelerator in ("auto", "gpu", "cuda") for settings in grid)


@contextlib.contextmanager
def place(per_card: int) -> Iterator[None]:
    """A place on a card, which ``per_card`` processes share, taken before this one uses CUDA; 0 or no cards: nothing happens.

    The card with the fewest processes is taken. If other commands have taken all places, it waits until one is free. The
    place of a process that dies is free again.
    """
    with ExitStack() as holding:
        known = cards() if per_card else []
        while known:
            if (card := _taken(known, per_card, holding)) is not None:
                os.environ[VISIBLE] = card.id
                break
            time.sleep(_POLL)
            known = cards() or known
        yield


def _taken(known: Sequence[Card], per_card: int, holding: ExitStack) -> Card | None:
    for number in range(per_card):
        for card in known:
            lock = _lock(card, number)
            with contextlib.suppress(Timeout):
                lock.acquire(timeout=0)
                holding.callback(lock.release)
                return card
    return None


def _is_ours(card: Card) -> bool:
    """Whether a process of ours has a place on it."""
    for number in range(_PLACES):
        lock = _lock(card, number)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return True
        lock.release()
    return False


def _lock(card: Card, number: int) -> FileLock:
    """Locks are per user; other users are recognized by the memory that they use."""
    return FileLock(Path(tempfile.gettempdir()) / f"fedtide-{os.getuid()}-{card.id}-{number}.lock")
