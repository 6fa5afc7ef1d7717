"""Detectors of change on the losses of a run, and the responses to their alarms."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fedtide.core.randomness import key64
from fedtide.detectors.base import Stream
from fedtide.engine import contract
from fedtide.federation.boundary import forget_all
from fedtide.federation.downlink import restart
from fedtide.federation.parts import Parts
from fedtide.federation.plan import RoundPlan
from fedtide.federation.round import RoundResult
from fedtide.federation.state import RunState

SERVER = -1
"""Where the streams of clients have their ids."""

_SEEDS = 2**32 - 1


class Detection:
    """Watches the losses of a run, and responds in the round after an alarm.

    All that counts is in ``state.detector``: the losses of each stream since it began, and the rounds of responses. Streams
    that are not at hand are shown their losses again, so a resumed run goes on as an uninterrupted one.
    """

    def __init__(self, parts: Parts) -> None:
        self.parts, self._planned = parts, parts.timeline
        self._chosen: Any = parts.settings.detector
        self._begun = list[int]()  # rounds of the sessions that have been added to the planned ones
        self._streams: tuple[Tensor, dict[int, Stream]] | None = None  # the losses that they have seen, and the streams

    def begin_sessions(self, state: RunState) -> None:
        """Add the sessions that alarms have begun to the timeline."""
        if self._chosen.response != "start_session" or (rounds := _rounds(state)) == self._begun:
            return
        timeline = self._planned
        for t in rounds:
            timeline = timeline.with_session(t)
        self.parts.timeline = self.parts.evaluator.timeline = timeline
        self._begun = rounds

    def respond(self, state: RunState, t: int) -> None:
        """Reset memories or model before round ``t``, after an alarm in the round before."""
        response = self._chosen.response
        if response == "reset_model" and t == self.parts.timeline.session_span(t)[0]:
            state.detector = {**state.detector, "w": state.w.clone(), "b": state.b.clone()}
        elif response == "reset_model" and t in _rounds(state):
            state.w, state.b = state.detector["w"].clone(), state.detector["b"].clone()
            restart(self.parts, state)
        elif response == "reset_memories" and t in _rounds(state):
            forget_all(self.parts, state)

    def changed(self, plan: RoundPlan, state: RunState) -> RoundPlan:
        """The plan with raised learning rates, or with the rounds since memories were reset as those of the session."""
        s, starts = self._chosen, plan.starts
        if s.response == "reset_memories":
            return replace(plan, session_round=min([plan.session_round, *(plan.t - t for t in _rounds(state))]))
        if s.response != "raise_rate" or not (rounds := _rounds(state)):
            return plan

        def raised(rate: float, t: int) -> float:
            found: float = s.factor * rate if any(first <= t < first + s.rounds for first in rounds) else rate
            return found

        if starts is not None:
            pairs = zip(starts.lr, starts.staleness, strict=True)
            starts = replace(starts, lr=[raised(rate, plan.t - behind) for rate, behind in pairs])
        return replace(plan, lr=raised(plan.lr, plan.t), starts=starts)

    def observe(self, state: RunState, plan: RoundPlan, result: RoundResult, failed: bool) -> dict[str, int | None]:
        """Show the detectors the losses of a round; what to record: whether there is an alarm, and of how many clients."""
        s, names = self._chosen, ["alarm", "alarmed_clients"] if self._chosen.watch == "clients" else ["alarm"]
        if self.parts.detector is None:
            return {}
        if failed:
            return dict.fromkeys(names)
        seen = self._seen(plan, result)
        ids, losses, streams = self._kept(state, plan)
        alarmed = [id_ for id_, loss in seen.items() if self._alarms(streams, id_, loss)]
        alarm = bool(alarmed) and len(alarmed) / len(seen) >= (s.share or 0)
        ids = torch.cat([ids, torch.tensor(list(seen), dtype=torch.int64)])
        losses = torch.cat([losses, torch.tensor(list(seen.values()), dtype=torch.float64)])
        over = torch.isin(ids, torch.tensor(alarmed, dtype=torch.int64))
        responses = _rounds(state)
        if alarm and s.response != "none":
            over.fill_(True)
            responses.append(plan.t + 1)
        values = {
            "streams": ids[~over],
            "losses": losses[~over],
            "responses": torch.tensor(responses, dtype=torch.int64),
        }
        state.detector = {**state.detector, **values}
        self._streams = values["losses"], _without(streams, ids[over])
        self.begin_sessions(state)
        return dict(zip(names, (int(alarm), len(alarmed)), strict=False))

    def _seen(self, plan: RoundPlan, result: RoundResult) -> dict[int, float]:
        """The losses of a round by stream; none of who took no step, or has left."""
        if self._chosen.watch == "server":
            return {SERVER: result.train_loss} if result.trained else {}
        keeps = [True] * len(plan.ids) if plan.starts is None else plan.starts.keeps
        rows = zip(plan.ids, result.losses.tolist(), keeps, strict=True)
        return {id_: loss for id_, loss, keep in rows if keep and not math.isnan(loss)}

    def _kept(self, state: RunState, plan: RoundPlan) -> tuple[Tensor, Tensor, dict[int, Stream]]:
        """Ids and losses so far, and the streams, without those of clients that have left."""
        ids, losses = state.detector["streams"].cpu(), state.detector["losses"].cpu()
        streams, known = dict[int, Stream](), self._streams
        if known is not None and known[0] is state.detector["losses"]:
            streams = known[1]
        else:
            for id_, loss in zip(ids.tolist(), losses.tolist(), strict=True):
                self._alarms(streams, id_, loss)
        here = torch.isin(ids, torch.from_numpy(plan.present.clients)) | (ids == SERVER)
        if plan.departed is not None:
            here &= ~torch.isin(ids, torch.from_numpy(plan.departed))
        return ids[here], losses[here], _without(streams, ids[~here])

    def _alarms(self, streams: dict[int, Stream], id_: int, loss: float) -> bool:
        detector = self.parts.detector
        assert detector is not None
        if id_ not in streams:
            streams[id_] = detector.begin(key64(self.parts.settings.seed, "detector", id_) & _SEEDS)
        found: bool = contract.instance(detector, "begin", streams[id_](loss), bool)
        return found


def _rounds(state: RunState) -> list[int]:
    """Rounds that a response comes before."""
    rounds: list[int] = state.detector["responses"].tolist()
    return rounds


def _without(streams: dict[int, Stream], ids: Tensor) -> dict[int, Stream]:
    gone = set(ids.tolist())
    return {id_: stream for id_, stream in streams.items() if id_ not in gone}
