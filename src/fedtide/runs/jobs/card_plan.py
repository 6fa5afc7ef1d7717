"""How many runs share a graphics card."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from fedtide.runs.jobs.cards import Card, cards, uses_cards
from fedtide.settings.experiment import Hosts
from fedtide.settings.run import RunSettings

_CONTEXT = 1 << 30  # bytes that a process takes on a card beside its run
_MOST = 4  # most runs on a card unless the settings allow more: they take turns anyway


def share_cards(
    grid: Sequence[RunSettings], hosts: Hosts, worlds: Path | None, log: Callable[[str], None]
) -> tuple[int, int]:
    """Runs that share a card, 0 for none, and the number of places on this machine's cards, unlimited without any."""
    unlimited = len(grid) + 10**9
    if not uses_cards(grid):
        return 0, unlimited
    if hosts.away:
        return hosts.runs_per_card or 1, unlimited
    found = cards()
    if not found:
        return 0, unlimited
    per_card = hosts.runs_per_card or _room(grid, found, worlds)
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
