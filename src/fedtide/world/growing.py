"""Periods of a table to which rows are appended: what was known at each, and hashes of its samples."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from fedtide.core.array_types import Ints
from fedtide.core.errors import SettingsError
from fedtide.world.dataset import Dataset, Split
from fedtide.world.timeline import HeldOut, Timeline

CHANGED = 2
"""Last periods of a run whose rows may still change: the last one may have been incomplete, and rows may come late."""

REDONE = CHANGED + 1
"""Last periods that are then trained again, since a period's models are evaluated on the next one."""


@dataclass(frozen=True)
class Period:
    """A period of the data's own time as a run has seen it.

    Attributes:
        name: of the period. round: its first one, counted from 0.
        rows: hash of its clients and their samples, and of those it is evaluated on. ahead: of the next period's that it is
            evaluated on as well, empty if there are none.
    """

    name: str
    round: int
    rows: str
    ahead: str


def known_at(timeline: Timeline, round_: int) -> Timeline:
    """The timeline up to the end of the session of ``round_``, as if nothing had followed: no later round, client or shard.

    Only samples of the next period that are evaluated ahead are there. Clients and shards have to be numbered in the order in
    which they appear.
    """
    session = int(timeline.session_of_round[round_])
    starts = timeline.session_starts
    end = timeline.rounds if session + 1 == timeline.sessions else int(starts[session + 1])
    assignments = timeline.assignments[: int(timeline.assignment_of_round[:end].max()) + 1]
    clients = 1 + max(int(each.clients.max()) for each in assignments)
    kept, indices = np.unique([timeline.held_out_of_round[:end], timeline.next_of_round[:end]], return_inverse=True)
    own, ahead = (indices.reshape(2, -1) - int(kept[0] < 0)).astype(np.int64)
    held_out = [timeline.held_out[number] for number in kept if number >= 0]
    kept_notes = {name: timeline.notes[name][: session + 1] for name in ("periods", "numbers")}
    return replace(
        timeline,
        num_clients=clients,
        shards=timeline.shards[: 1 + max(int(each.shards.max()) for each in assignments)],
        assignments=assignments,
        assignment_of_round=timeline.assignment_of_round[:end],
        session_of_round=timeline.session_of_round[:end],
        view_of_round=timeline.view_of_round[:end],
        validation=np.unique(np.concatenate([each.validation for each in held_out])),
        held_out=held_out,
        held_out_of_round=own,
        next_of_round=ahead,
        origin_of_client=timeline.origin_of_client[:clients],
        active=timeline.active[:end],
        notes=timeline.notes | kept_notes | {"grows": True},
    )


def seen_periods(timeline: Timeline, data: Dataset) -> list[Period]:
    """The periods of a timeline of the data's own clients and times, in order."""
    names = timeline.notes["periods"]
    return [
        Period(
            str(names[session]),
            int(first),
            _of_period(timeline, data, int(first)),
            _of_samples(data, timeline.evaluated_ahead_at(int(first))),
        )
        for session, first in enumerate(timeline.session_starts)
    ]


def first_change(before: Sequence[Period], now: Sequence[Period]) -> Period | None:
    """The first of the periods that a run has seen which is another one now; None if all are the same.

    Raises:
        SettingsError: the rows of an earlier one than the last :data:`CHANGED` have changed.
    """
    for number, period in enumerate(before):
        new = now[number] if number < len(now) else None
        if (new is None or replace(new, ahead="") != replace(period, ahead="")) and number < len(before) - CHANGED:
            name = period.name if new is None or new.name in [each.name for each in before] else new.name
            raise SettingsError(
                f"rows of {name} were changed, added or removed since the run was trained on them; only those of its last "
                f"{CHANGED} periods, {' and '.join(each.name for each in before[-CHANGED:])}, may still change"
            )
    return next((old for number, old in enumerate(before) if now[number : number + 1] != [old]), None)


def _of_period(timeline: Timeline, data: Dataset, round_: int) -> str:
    names, origins = data.origins.clients, timeline.origin_of_client
    digest = hashlib.sha256()
    for client, shard in zip(timeline.at(round_).clients, timeline.shards_at(round_), strict=True):
        digest.update(json.dumps([int(client), names[origins[client]]]).encode())
        _add(digest, data, "train", shard)
    digest.update(_of_samples(data, timeline.evaluated_at(round_)).encode())
    return digest.hexdigest()[:16]


def _of_samples(data: Dataset, held_out: HeldOut | None) -> str:
    if held_out is None:
        return ""
    digest = hashlib.sha256()
    _add(digest, data, "test", held_out.test)
    for positions in (held_out.validation, held_out.train):
        _add(digest, data, "train", positions)
    return digest.hexdigest()[:16]


def _add(digest: Any, data: Dataset, split: Split, positions: Ints) -> None:
    """Add samples, with whose they are and when, to a hash."""
    digest.update(f"{split} {len(positions)}".encode())
    for values in data.read(split, torch.from_numpy(positions)):
        digest.update(np.ascontiguousarray(values.numpy()).data)
    client, time = (getattr(data.origins, f"{split}_{what}")[positions] for what in ("client", "time"))
    digest.update(json.dumps([data.origins.clients[number] for number in client]).encode())
    digest.update(np.ascontiguousarray(time).data)
