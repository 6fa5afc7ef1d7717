"""Who is new, who stayed, who came back and who has left."""

import numpy as np

from fedtide.core.array_types import Ints
from fedtide.world.timeline import Timeline

PRESENT = ("newcomers", "stayers", "returners")  # groups of the clients present
GROUPS = (*PRESENT, "departed")


def membership(timeline: Timeline, t: int) -> dict[str, Ints]:
    """Ascending ids of the clients of each of :data:`GROUPS` in round ``t`` (0-based); empty in the first period.

    ``newcomers`` are present in their first period, ``stayers`` were also present in the period before, ``returners`` only in
    an earlier one; ``departed`` were present earlier and are absent. Where the data has no periods of time, sessions are meant.
    """
    period, starts = int(timeline.period_of_round[t]), timeline.period_starts
    if period == 0:
        return {group: np.zeros(0, dtype=np.int64) for group in GROUPS}
    now, start = timeline.at(t).clients, int(starts[period])
    earlier, previous = _seen(timeline, 0, start), _seen(timeline, int(starts[period - 1]), start)
    return {
        "newcomers": np.setdiff1d(now, earlier),
        "stayers": np.intersect1d(now, previous),
        "returners": np.setdiff1d(np.intersect1d(now, earlier), previous),
        "departed": np.setdiff1d(_seen(timeline, 0, t), now),
    }


def last_round(timeline: Timeline, t: int) -> Ints:
    """The last round up to ``t`` in which each client was present, -1 for none; int64 [N]."""
    rounds = np.full(timeline.num_clients, -1, dtype=np.int64)
    indices, backwards = np.unique(timeline.assignment_of_round[: t + 1][::-1], return_index=True)
    for place in np.argsort(-backwards):
        rounds[timeline.assignments[indices[place]].clients] = t - backwards[place]
    return rounds


def last_shards(timeline: Timeline, t: int) -> Ints:
    """The shard that each client holds in round ``t``, or held when it was last present; -1 for none; int64 [N]."""
    rounds = last_round(timeline, t)
    shards = np.full(timeline.num_clients, -1, dtype=np.int64)
    for round_ in np.unique(rounds[rounds >= 0]):
        held = timeline.at(round_)
        own = rounds[held.clients] == round_
        shards[held.clients[own]] = held.shards[own]
    return shards


def _seen(timeline: Timeline, first: int, end: int) -> Ints:
    indices = np.unique(timeline.assignment_of_round[first:end])
    return np.unique(np.concatenate([timeline.assignments[index].clients for index in indices]))
