"""The model that clients receive, where the server compresses what it sends.

Server and clients have a copy w~ of the model w in common. Clients train from the copy, their update U moves w itself, and the
server sends Q of what the copy then lacks::

    w+ = w + U(w~),   w~+ = w~ + Q(w+ - w~)

so that w - w~ is an error feedback: what Q has lost of an update is part of the next one (Gruntkowska et al. 2023, EF21-P). If
Q is a contraction, the error is no longer than some updates, and vanishes with them. At the start of a session, and where a
detector replaces the model, w~ = w and clients have received nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from fedtide.federation.parts import Parts
from fedtide.federation.plan import RoundPlan
from fedtide.federation.state import RunState, fresh_downlink


def restart(parts: Parts, state: RunState) -> None:
    """The model was replaced: the copy is the model, and nobody has it."""
    state.downlink = fresh_downlink(parts, state.w)


def broadcast(state: RunState) -> Tensor:
    """The model [d] that clients train from: w~, or w if nothing is compressed."""
    return state.downlink.get("w", state.w)


def moved(state: RunState, w: Tensor) -> Tensor:
    """w+ [d], where an algorithm has moved the copy to ``w``."""
    sent = broadcast(state)
    return w if sent is state.w or torch.equal(sent, state.w) else w + (state.w - sent)


def needed(parts: Parts, state: RunState, clients: Sequence[int], t: int) -> list[int]:
    """Bytes that each of these clients would have to receive to train in round ``t``: an update for every one it has missed.

    One that starts again before the model has changed receives one, too, as without compression it receives the model again.
    """
    payload = parts.payload
    if not state.downlink:
        return [payload.down] * len(clients)
    had: list[int] = state.downlink["received"][list(clients)].tolist()
    return [payload.received(max(1, t + 1 - last) if last else None) for last in had]


def receive(parts: Parts, state: RunState, clients: Sequence[int], t: int) -> list[int]:
    """The same, and they receive it."""
    found = needed(parts, state, clients, t)
    if state.downlink:
        state.downlink["received"][list(clients)] = t + 1
    return found


def forget(state: RunState, departed: Collection[int]) -> None:
    """Clients that leave take their copy along."""
    if state.downlink and departed:
        state.downlink["received"][list(departed)] = 0


def advance(parts: Parts, state: RunState, plan: RoundPlan) -> dict[str, float | None]:
    """After a round: send Q of what the copy lacks of ``state.w``; to record: the length of what it still lacks."""
    link = parts.downlink
    if link is None:
        return {}
    copy, purpose = state.downlink["w"], "downlink" if plan.purpose != "gradient" else "downlink.gradient"
    lacks = state.w - copy
    if link.exact(len(lacks)) or not bool(lacks.isfinite().all()):
        copy = state.w.clone()
    else:
        keys = plan.keys or (plan.t,)
        copy = copy + link.compressed(lacks, lambda: parts.randomness.generator(purpose, *keys))
    state.downlink = {**state.downlink, "w": copy}
    left = torch.linalg.vector_norm(state.w - copy)
    return {"downlink_error": float(left) if left.isfinite() else None}
