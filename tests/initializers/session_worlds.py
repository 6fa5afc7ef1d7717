"""Small worlds of sessions for tests of initializers."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from fedtide.federation.federation import Federation
from fedtide.federation.types import RunState
from fedtide.world.timeline import Timeline
from support import deal, federation, run_rounds, settings, timeline, vectors

SIZES = (4, 3, 5, 2)
LOCAL = {"steps": 2, "batch_size": 3, "lr": 0.2}
A, B = (0, 1), (2, 3)


def populations(devices: Sequence[Sequence[int]], rounds: int = 1, pilot: int = 1) -> Timeline:
    """A world whose sessions have the given devices; device k always holds shard k."""
    session_of_round = [session for session in range(len(devices)) for _ in range(rounds)]
    present = [{k: k for k in devices[session]} for session in session_of_round]
    notes = {"pilot_sessions": pilot}
    return timeline(deal(SIZES), present, clients=4, session_of_round=session_of_round, notes=notes)


def alternating(sessions: int = 6, rounds: int = 1, pilot: int = 1) -> Timeline:
    """Two groups of two devices take turns."""
    return populations([(A, B)[session % 2] for session in range(sessions)], rounds, pilot)


def made(initializer: Any, world: Timeline | None = None, data: Any = None, **values: Any) -> Federation:
    """A federation on such a world, by default on Gaussian vectors."""
    chosen = settings(**{"initializer": initializer, "local": LOCAL, **values})
    return federation(chosen, world or alternating(), data or vectors())


def sessions_of(fed: Federation) -> tuple[list[RunState], list[Tensor], list[Any]]:
    """Run everything: the state at the end (in a list), the model before each session, and what is on record of it."""
    state, records = run_rounds(fed)
    begun = [record for record in records if record.initial is not None]
    return [state], [record.initial for record in begun], [record.session for record in begun]
