"""Who is present when, with ``clock: events``."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from fedtide.core.randomness import generator
from fedtide.federation.plan import departures, eligible_clients
from fedtide.world.timeline import Assignment, Ints, Timeline


class Presence:
    """The timeline's clients that hold data: those of round t + 1 are present while the model has had t updates.

    Args:
        timeline: of the run. seed: of the order in which they first wait.
    """

    def __init__(self, timeline: Timeline, seed: int) -> None:
        self.timeline, self.seed = timeline, seed

    def first(self, t: int) -> list[int]:
        """Clients at the start of the session that begins with round ``t``, in the order of the waiting line."""
        clients = eligible_clients(self.timeline, t).clients
        order: list[int] = generator(self.seed, "line", t).permutation(clients).tolist()
        return order

    def changes(self, before: int, t: int, now: int) -> tuple[set[int], list[int]]:
        """Who leaves and who joins, by ascending id, in an instant at whose start and end the model is of version.

        Args:
            before, t: the versions at which changes were last looked at, and now. now: the instant, in ticks.
        """
        if len(distinct := self._distinct(before, t)) == 1:
            return set(), []
        rounds = [set(eligible_clients(self.timeline, v).clients.tolist()) for v in distinct]
        left = set[int]().union(*(old - new for old, new in pairwise(rounds)))
        return left, sorted(rounds[-1] - (rounds[0] - left))

    def _distinct(self, before: int, t: int) -> list[int]:
        """First round of each run of equal assignments from ``before`` to ``t``."""
        which = self.timeline.assignment_of_round[before : t + 1]
        return (before + np.flatnonzero(np.diff(which, prepend=-1))).tolist()

    def following(self, now: int) -> int | None:
        """The next instant after ``now`` with a change that no update brings about."""
        return None

    def population(self, t: int, since: int, now: int) -> tuple[Assignment, Ints | None]:
        """Clients present at the update of version ``t``, and those that have left since the one before.

        Args:
            t: see above. since, now: instants of both updates, in ticks.

        Returns:
            Clients with their shards, and ids; None if the same clients are present.
        """
        return self.timeline.at(t), departures(self.timeline, t)

    def shards(self, clients: list[int], t: int) -> list[int]:
        """What each of these clients holds in round ``t``."""
        here = self.timeline.at(t)
        return here.shards[np.searchsorted(here.clients, clients)].tolist()  # type: ignore[no-any-return]
