"""Who is present when, with ``mode: async``."""

from itertools import pairwise

import numpy as np

from fedtide.core.array_types import Bools, Ints
from fedtide.core.randomness import generator
from fedtide.federation.rounds.plan import departures, eligible_clients
from fedtide.world.presence.visits import Changes, Visits
from fedtide.world.timeline import Assignment, Timeline

_REPETITIONS = 10  # repetitions of the longest trace without a result after which none is expected any more


class Presence:
    """The timeline's clients that hold data: those of round t + 1 are present while the model has had t updates.

    ``seed``: of the order in which they first wait.
    """

    def __init__(self, timeline: Timeline, seed: int) -> None:
        self.timeline, self.seed = timeline, seed

    patience: int | None = None
    """Ticks without any result after which there will be none; None: as many as it takes."""

    def first(self, t: int, now: int) -> list[int]:
        """Clients at tick ``now``, the start of the session that begins with round ``t``, in the order of the waiting line."""
        return self._ordered(eligible_clients(self.timeline, t).clients, t)

    def _ordered(self, clients: Ints, t: int) -> list[int]:
        order: list[int] = generator(self.seed, "line", t).permutation(clients).tolist()
        return order

    def changes(self, before: int, t: int, now: int) -> tuple[set[int], list[int]]:
        """Who leaves and who joins, by ascending id, at tick ``now``, since changes were looked at for version ``before``."""
        if len(distinct := self._distinct(before, t)) == 1:
            return set(), []
        rounds = [set(eligible_clients(self.timeline, v).clients.tolist()) for v in distinct]
        left = set[int]().union(*(old - new for old, new in pairwise(rounds)))
        return left, sorted(rounds[-1] - (rounds[0] - left))

    def _distinct(self, before: int, t: int) -> list[int]:
        """First round of each run of equal assignments from ``before`` to ``t``."""
        return (
            before + np.flatnonzero(np.diff(self.timeline.assignment_of_round[before : t + 1], prepend=-1))
        ).tolist()

    def following(self, now: int) -> int | None:
        """The next instant after ``now`` with a change that no update brings about."""
        return None

    def population(self, t: int, since: int, now: int) -> tuple[Assignment, Ints | None]:
        """Clients present at the update of version ``t`` (tick ``now``) with their shards; ids that left since tick ``since``.

        None if the same clients are present.
        """
        return self.timeline.at(t), departures(self.timeline, t)

    def shards(self, clients: list[int], t: int) -> list[int]:
        """What each of these clients holds in round ``t``."""
        here = self.timeline.at(t)
        return here.shards[np.searchsorted(here.clients, clients)].tolist()  # type: ignore[no-any-return]


class PresenceInSeconds(Presence):
    """Clients that come and go at their own seconds, however many updates the model has had."""

    def __init__(self, timeline: Timeline, visits: Visits, seed: int, slot: float) -> None:
        super().__init__(timeline, seed)
        self._moves = Changes(visits, slot)
        self._trains = np.zeros(timeline.num_clients, dtype=np.bool_)
        self._trains[eligible_clients(timeline, 0).clients] = True
        self.patience = _REPETITIONS * self._moves.longest or None

    def first(self, t: int, now: int) -> list[int]:
        return self._ordered(np.flatnonzero(self._moves.present(now) & self._trains), t)

    def changes(self, before: int, t: int, now: int) -> tuple[set[int], list[int]]:
        """See :meth:`Presence.changes`; the versions do not matter."""
        left, joined = self._between(now - 1, now)
        return set(np.flatnonzero(left & self._trains).tolist()), np.flatnonzero(joined & self._trains).tolist()

    def following(self, now: int) -> int | None:
        return self._moves.following(now, self._trains)

    def population(self, t: int, since: int, now: int) -> tuple[Assignment, Ints | None]:
        """See :meth:`Presence.population`; what changes in the instant of an update comes after it."""
        listed, here = self.timeline.at(t), self._moves.present(now - 1)
        left, joined = self._between(since - 1, now - 1)
        inside = here[listed.clients]
        departed = np.flatnonzero(left) if (left | joined).any() else None
        return Assignment(listed.clients[inside], listed.shards[inside]), departed

    def _between(self, before: int, now: int) -> tuple[Bools, Bools]:
        """Who has left, and who has come and is present, in the ticks after ``before`` up to ``now``: both bool [N]."""
        moves, was = self._moves.until(now) - self._moves.until(before), self._moves.present(before)
        return moves > ~was, (moves > 0) & self._moves.present(now)


def make_presence(timeline: Timeline, seed: int, slot: float) -> Presence:
    """Who is present when in a run."""
    if timeline.visits is None:
        return Presence(timeline, seed)
    return PresenceInSeconds(timeline, timeline.visits, seed, slot)
