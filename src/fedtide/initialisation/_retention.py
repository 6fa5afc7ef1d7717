"""Which stored sessions are kept when their number is limited."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations


def kept(
    sessions: Sequence[int], cap: int | None, diverse: bool, distance: Callable[[int, int], float] = lambda *_: 0.0
) -> list[int]:
    """Sessions to keep, ascending.

    Args:
        sessions: the stored ones, ascending.
        cap: most sessions to keep; ``None`` for all.
        diverse: drop the older one of the nearest pair (ties: the smallest pair) until the rest fits, which keeps a recent
            representative of each population; otherwise drop the oldest.
        distance: between two sessions, for ``diverse``.
    """
    if cap is None or len(sessions) <= cap:
        return list(sessions)
    if not diverse or cap == 0:
        return list(sessions[len(sessions) - cap :])
    left = list(sessions)
    apart = {pair: distance(*pair) for pair in combinations(left, 2)}
    while len(left) > cap:
        older, _ = min(combinations(left, 2), key=lambda pair: (apart[pair], pair))
        left.remove(older)
    return left
