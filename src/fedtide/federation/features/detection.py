"""Detectors of change on the losses of a run, and the responses to their alarms."""

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fedtide.core.randomness import key64
from fedtide.federation.rounds.plan import RoundPlan
from fedtide.federation.state import forget_all
from fedtide.federation.types import Chosen, Feature, Memory, Parts, RoundContext, RunState
from fedtide.methods.detectors.base import SHARE, Detector, Watch
from fedtide.training.engine import contract
from fedtide.training.engine.flat import Layout
from fedtide.world.dataset import Dataset
from fedtide.world.timeline import Timeline

SERVER = -1
"""Where the streams of clients have their ids."""

_SEEDS = 2**32 - 1


class Detection(Feature):
    """Watches the losses of a run, and responds in the round after an alarm.

    It keeps ``streams``, ``periods`` int64 [n] and ``losses`` float64 [n], what each stream of losses has seen since it began,
    in order, 24 bytes for every participant of a round at most; ``responses`` int64 [k], rounds that one came before; and with
    ``reset_model`` the session's first model, ``w`` [d] and ``b`` [q]. Streams that are not at hand are shown their losses
    again, so a resumed run goes on as an uninterrupted one. Periods are the sessions that no alarm has begun.
    """

    name = "detector"
    rehearses = False

    def __init__(self, detector: Detector, seed: int) -> None:
        self.detector, self._seed = detector, seed
        self._settings: Any = detector.settings
        self._planned: Timeline  # without the sessions that alarms have begun
        self._begun: list[int]  # rounds of those that have been added
        self._streams: tuple[Tensor, dict[int, Watch]] | None = None  # the losses that they have seen, and the streams

    def refuses(self, chosen: Chosen, timeline: Timeline, data: Dataset) -> str | None:
        self.detector.require()
        return None

    def bind(self, parts: Parts) -> None:
        self._planned, self._begun = parts.timeline, []

    def memory(self, chosen: Chosen, timeline: Timeline, layout: Layout) -> Memory:
        return Memory(once=self._settings.response == "reset_model")

    def state(self, parts: Parts) -> dict[str, Any]:
        first = {"w": parts.w0, "b": parts.b0} if self._settings.response == "reset_model" else {}
        none = torch.zeros(0, dtype=torch.int64)
        return {"streams": none, "periods": none, "losses": none.double(), "responses": none, **first}

    def open(self, parts: Parts, state: RunState, t: int) -> None:
        """Add the sessions that alarms have begun to the timeline."""
        if self._settings.response != "start_session" or (rounds := self._rounds(state)) == self._begun:
            return
        timeline = self._planned
        for first in rounds:
            timeline = timeline.with_session(first)
        parts.timeline = parts.evaluator.timeline = timeline
        self._begun = rounds

    def begin(self, parts: Parts, state: RunState, t: int, session: bool, replaced: bool) -> bool:
        """Reset memories or model before round ``t``, after an alarm in the round before."""
        response, kept = self._settings.response, state.features[self.name]
        if response == "reset_model" and session:
            state.features[self.name] = {**kept, "w": state.w.clone(), "b": state.b.clone()}
        elif response == "reset_model" and t in self._rounds(state):
            state.w, state.b = kept["w"].clone(), kept["b"].clone()
            return True
        elif response == "reset_memories" and t in self._rounds(state):
            forget_all(parts, state)
        return replaced

    def plan(self, parts: Parts, state: RunState, plan: RoundPlan) -> RoundPlan:
        """Raise learning rates, or count the rounds since memories were reset as those of the session."""
        s, rounds, starts = self._settings, self._rounds(state), plan.starts
        if s.response == "reset_memories":
            return replace(plan, session_round=min([plan.session_round, *(plan.t - t for t in rounds)]))
        if s.response != "raise_rate" or not rounds:
            return plan

        def raised(rate: float, t: int) -> float:
            found: float = s.factor * rate if any(first <= t < first + s.rounds for first in rounds) else rate
            return found

        if starts is not None:
            pairs = zip(starts.lr, starts.staleness, strict=True)
            starts = replace(starts, lr=[raised(rate, plan.t - behind) for rate, behind in pairs])
        return replace(plan, lr=raised(plan.lr, plan.t), starts=starts)

    def close(self, r: RoundContext) -> None:
        """Show the detectors the losses of the round, and note an alarm."""
        if r.failed:
            r.notes[self.name] = torch.nan, torch.nan
            return
        s, seen, kept = self._settings, self._seen(r), r.state.features[self.name]
        ids, periods, losses, streams = self._kept(r.state, r.plan)
        period = int(self._planned.session_of_round[r.plan.t])
        alarmed = [id_ for id_, loss in seen.items() if self._alarms(streams, id_, loss, period)]
        alarm = bool(alarmed) and len(alarmed) / len(seen) >= (s.share or SHARE)
        ids = torch.cat([ids, torch.tensor(list(seen), dtype=torch.int64)])
        periods = torch.cat([periods, torch.full((len(seen),), period)])
        losses = torch.cat([losses, torch.tensor(list(seen.values()), dtype=torch.float64)])
        over = torch.isin(ids, torch.tensor(alarmed, dtype=torch.int64))
        responses = self._rounds(r.state)
        if alarm and s.response != "none":
            over.fill_(True)
            responses.append(r.plan.t + 1)
        now = {"streams": ids[~over], "periods": periods[~over], "losses": losses[~over]}
        r.state.features[self.name] = {**kept, **now, "responses": torch.tensor(responses, dtype=torch.int64)}
        self._streams = now["losses"], _without(streams, ids[over])
        r.notes[self.name] = int(alarm), len(alarmed)
        self.open(r.parts, r.state, r.plan.t + 1)

    def record(self, r: RoundContext) -> dict[str, Tensor | float]:
        """Whether there is an alarm, and of how many clients."""
        names = ["alarm", "alarmed_clients"] if self._settings.watch == "clients" else ["alarm"]
        return dict(zip(names, r.notes[self.name], strict=False))

    def _seen(self, r: RoundContext) -> dict[int, float]:
        """The losses of a round by stream; none of who took no step, or has left, and none that is not finite."""
        plan = r.plan
        if self._settings.watch == "server":
            return {SERVER: r.train_loss} if r.trained and math.isfinite(r.train_loss) else {}
        keeps = [True] * len(plan.ids) if plan.starts is None else plan.starts.keeps
        rows = zip(plan.ids, r.losses.tolist(), keeps, strict=True)
        return {id_: loss for id_, loss, keep in rows if keep and math.isfinite(loss)}

    def _kept(self, state: RunState, plan: RoundPlan) -> tuple[Tensor, Tensor, Tensor, dict[int, Watch]]:
        """Ids, periods and losses so far, and the streams, without those of clients that have left."""
        kept, known = state.features[self.name], self._streams
        ids, periods, losses = (kept[name].cpu() for name in ("streams", "periods", "losses"))
        streams: dict[int, Watch] = {}
        if known is not None and known[0] is kept["losses"]:
            streams = known[1]
        else:
            for id_, period, loss in zip(ids.tolist(), periods.tolist(), losses.tolist(), strict=True):
                self._alarms(streams, id_, loss, period)
        here = torch.isin(ids, torch.from_numpy(plan.present.clients)) | (ids == SERVER)
        if plan.departed is not None:
            here &= ~torch.isin(ids, torch.from_numpy(plan.departed))
        return ids[here], periods[here], losses[here], _without(streams, ids[~here])

    def _alarms(self, streams: dict[int, Watch], id_: int, loss: float, period: int) -> bool:
        if id_ not in streams:
            streams[id_] = self.detector.watch(key64(self._seed, "detector", id_) & _SEEDS)
        found: bool = contract.instance(self.detector, "begin", streams[id_](loss, period), bool)
        return found

    def _rounds(self, state: RunState) -> list[int]:
        """Rounds that a response comes before."""
        rounds: list[int] = state.features[self.name]["responses"].tolist()
        return rounds


def _without(streams: dict[int, Watch], ids: Tensor) -> dict[int, Watch]:
    gone = set(ids.tolist())
    return {id_: stream for id_, stream in streams.items() if id_ not in gone}
