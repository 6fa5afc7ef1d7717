"""Which stored sessions are kept when their number is limited."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations


def kept(
    sessions: Sequence[int], cap: int | None, diverse: bool, distance: Callable[[int, int], float] = lambda *_: 0.0
) -> list[int]:
    """Sessions to keep of the stored ones, ascending: at most ``cap``, if it is given.

    ``diverse`` drops the older one of the nearest pair (ties: the smallest pair) until the rest fits, which keeps a recent
    representative of each population; otherwise the oldest are dropped.
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
