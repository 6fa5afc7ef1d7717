"""Sessions that reports count as transitions."""

from collections.abc import Container


def transition_sessions(pilot: int, sessions: int, returning: Container[int]) -> list[int]:
    """Numbers (from 1) of the sessions that return to the clients of an earlier session after the pilot.

    With two groups that take turns, these are all from session pilot + 3 on. If no session returns, they are all sessions
    after the pilot that follow another one.
    """
    later = range(max(2, pilot + 1), sessions + 1)
    return [number for number in later if number in returning] or list(later)
