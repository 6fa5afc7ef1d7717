"""GPUs: every process that executes runs takes a place on one; those that others use are left alone."""

import contextlib
import csv
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from fedtide.settings.experiment import CompareSettings
from fedtide.settings.run import RunSettings

VISIBLE = "CUDA_VISIBLE_DEVICES"  # CUDA's variable: numbers or ids of the cards that a process may use, with commas
_QUERY = ("nvidia-smi", "--query-gpu=index,uuid,memory.used,memory.total", "--format=csv,noheader,nounits")
_OTHERS = 0.05
"""Share of a card's memory: if more is in use, and none of our processes has a place on it, the card is somebody else's."""

_CONTEXT = 1 << 30  # bytes that a process takes on a card beside its run
_MOST = 4  # most runs on a card unless the settings allow more: they take turns anyway
_PATIENCE = 30.0  # seconds for the list of cards
_POLL = 1.0  # seconds until a place may have become free
_PLACES = 64  # most places on a card that are looked at


@dataclass(frozen=True)
class Card:
    """A GPU: its number and unique id as text, its memory and what is used of it in bytes."""

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


def share_cards(
    grid: Sequence[RunSettings], where: CompareSettings, worlds: Path | None, log: Callable[[str], None]
) -> tuple[int, int]:
    """Runs that share a card, 0 for none, and the number of places on this machine's cards, unlimited without any."""
    unlimited = len(grid) + 10**9
    if not any(settings.engine.accelerator in ("auto", "gpu", "cuda") for settings in grid):
        return 0, unlimited
    if where.cluster:
        return where.runs_per_card or 1, unlimited
    found = cards()
    if not found:
        return 0, unlimited
    per_card = where.runs_per_card or _room(grid, found, worlds)
    log(f"{len(found)} GPUs, at most {per_card} concurrent runs on each")
    return per_card, per_card * len(found)


def _room(grid: Sequence[RunSettings], found: Sequence[Card], worlds: Path | None) -> int:
    """Runs that fit into half of the smallest card's memory, at least one."""
    by_label = {settings.label: settings for settings in grid}
    wanted = _CONTEXT + max(_needed(settings, worlds) for settings in by_label.values())
    return max(1, min(_MOST, *(card.memory // (2 * wanted) for card in found)))


def _needed(settings: RunSettings, worlds: Path | None) -> int:
    """Bytes of a run with its data, planned as on a CPU: on a card, its batches would take all that is free."""
    import torch

    from fedtide.federation.assembly.choose import choose
    from fedtide.federation.assembly.footprint import footprint
    from fedtide.world.building.build import timeline_for
    from fedtide.world.concepts import under
    from fedtide.world.storage.prepared import load_data

    data = load_data(settings)
    timeline = timeline_for(settings, data, worlds)
    data = under(data, timeline.concepts)
    wanted = footprint(choose(settings, timeline, data), timeline, data, torch.device("cpu"), torch.float32)
    return wanted.run + wanted.kept.size + 4 * (data.train_inputs.numel() + data.test_inputs.numel())


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
