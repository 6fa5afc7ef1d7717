"""Lines that coincide over whole sessions are one line with all their names.

Methods that differ in how sessions start are the same until a session starts with another model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

_VALUES = ["round", "x", "mean", "low", "high"]


def distinct_lines(
    curves: Mapping[str, pd.DataFrame], joined: bool
) -> Iterator[tuple[tuple[str, ...], list[pd.DataFrame]]]:
    """The lines to draw, and the pieces of each: first of single methods, then of those that coincide.

    Methods coincide in a session if all their values in it are equal to the bit.

    Args:
        curves: a row per round, by session and round, of each method, with the columns ``session``, ``round``, ``x``, ``mean``,
            ``low`` and ``high``.
        joined: whether a line goes on from session to session; then it also begins and ends where it leaves the others.
    """
    sessions = {
        name: {int(str(session)): rows for session, rows in curve.groupby("session")} for name, curve in curves.items()
    }
    together = {session: _groups(sessions, session) for found in sessions.values() for session in found}
    owners = dict.fromkeys(group for session in sorted(together) for group in together[session])
    order = list(curves)
    for owner in sorted(owners, key=lambda names: (len(names) > 1, [order.index(name) for name in names])):
        own = [session for session in sorted(together) if owner in together[session]]
        pieces: list[pd.DataFrame] = []
        for session in own:
            piece = sessions[owner[0]][session]
            if joined and pieces and session - 1 in own:
                pieces[-1] = pd.concat([pieces[-1], piece])
            else:
                before = sessions[owner[0]].get(session - 1) if joined else None
                shared = before is not None and any(set(owner) < set(group) for group in together[session - 1])
                pieces.append(pd.concat([before.tail(1), piece]) if before is not None and shared else piece)
            after = sessions[owner[0]].get(session + 1) if joined else None
            if after is not None and any(set(owner) < set(group) for group in together[session + 1]):
                pieces[-1] = pd.concat([pieces[-1], after.head(1)])
        yield owner, pieces


def _groups(sessions: Mapping[str, Mapping[int, pd.DataFrame]], session: int) -> list[tuple[str, ...]]:
    """Names of methods whose values in a session are equal."""
    groups: dict[bytes, list[str]] = {}
    for name, curves in sessions.items():
        if session in curves:
            groups.setdefault(curves[session][_VALUES].to_numpy(dtype="float64").tobytes(), []).append(name)
    return [tuple(names) for names in groups.values()]
