"""Clients that are erased: the world without them, what is stored until they ask, and the runs that show what they left."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedtide.core.array_types import Ints
from fedtide.core.errors import SettingsError
from fedtide.federation.features.erasing import Step
from fedtide.federation.features.relearning import epochs
from fedtide.federation.features.requests import Request, refused, without_rounds
from fedtide.federation.features.stored_models import concerned, revise
from fedtide.federation.features.twins import Twins, copied, note_end
from fedtide.federation.features.worlds import Worlds, held_by
from fedtide.federation.rounds.plan import RoundPlan, participants
from fedtide.federation.scoring.erased import MEASURES
from fedtide.federation.state import clear, forget_all, keep_means
from fedtide.federation.traffic import BYTES
from fedtide.federation.types import Chosen, Feature, Memory, Parts, RoundContext, RunState
from fedtide.methods.initializers.base import Start
from fedtide.records.run_directory import REQUEST
from fedtide.training.engine.flat import Layout
from fedtide.world.dataset import Dataset
from fedtide.world.timeline import Assignment, Timeline

COSTS = ("gradients_retained", "gradients_erased", "down", "up", "rounds", "stored")
RELEARNED = "relearned", "relearned_counterfactual"
"""Measured after the last round, with ``evaluation.relearn_epochs``."""

MAIN = ("excess", "memory_left", "retained_pooled_change")
"""Measures that are recorded at the starts of sessions, and right after a request, too."""


class Erasure(Feature):
    """Requests are handled before everything else of their round, the start of a session included.

    The counterfactual of a request is the run in which its clients never took part: from populations and cohorts they are
    taken out, and all other draws are the same. It is a twin of the run that shares its data and workers, and begins as a copy
    of the run before the first round that the clients had a part in; so is the run in which nothing is erased, from the
    request on. Both are trained where the eraser or ``evaluation.erased`` asks for them, and advance with the run.
    """

    name = "erasure"
    rehearses, lasting, idles = False, True, True

    def __init__(self, requests: Sequence[Request]) -> None:
        self.requests = requests
        self._rows = sorted({name for request in requests for name in request.eraser.keeps})
        self._negates = any(request.eraser.helps == "erased" for request in requests)
        self.updates = bool(self._rows) or self._negates or any(request.rounds for request in requests)
        self._parts: Parts
        self._worlds: Worlds
        self._twins: Twins
        self._seen: tuple[int, Timeline] | None = None  # requests handled, and the timeline in use

    # Before the run.

    def refuses(self, chosen: Chosen, timeline: Timeline, data: Dataset) -> str | None:
        if chosen.settings.mode.name == "async":
            return "erase: an empty place in the waiting line would move all later results; use mode: sync"
        moments = [request.at for request in self.requests]
        if sorted(set(moments)) != moments:
            return (
                f"erase: requests before rounds {', '.join(map(str, moments))} should be in the order of their rounds"
            )
        asked: set[int] = set()
        for request in self.requests:
            if again := asked.intersection(request.ids.tolist()):
                who = f"client {request.names[min(again)]}"
                return f"erase: {who} asks twice; name it in one request, or use after: returns in the first"
            asked.update(request.ids.tolist() if request.eraser.settings.after == "away" else [])
        problems = (problem for request in self.requests if (problem := refused(request, chosen, timeline)))
        return next(problems, None) or without_rounds(self.requests, chosen, timeline)

    def bind(self, parts: Parts) -> None:
        self._parts, self._worlds = parts, Worlds(self.requests, parts)
        self._twins = Twins(self, self._worlds.of_twin)
        for number, request in enumerate(self.requests):
            without = self._worlds.counterfactual(number)
            if not any(len(without.at(t).clients) for t in range(request.at, without.rounds)):
                raise SettingsError(f"erase: nobody is left from round {request.at} on; erase fewer clients")

    def rows(self, chosen: Chosen, layout: Layout) -> dict[str, int]:
        return {f"erasure.{name}": layout.size for name in self._rows}

    def memory(self, chosen: Chosen, timeline: Timeline, layout: Layout) -> Memory:
        cohort = max(1, round(chosen.participation.participation_fraction(timeline.num_clients) * timeline.num_clients))
        stored = sum(len(request.rounds) * (cohort + 1) + len(request.models) for request in self.requests)
        rows = sum(width for name, width in chosen.client_rows(layout).items() if not name.startswith(f"{self.name}."))
        state = 1 + len(chosen.algorithm.server) + math.ceil(timeline.num_clients * rows / layout.size)
        compared = chosen.settings.evaluation.erased
        twins = sum(compared or request.eraser.memory == "counterfactual" for request in self.requests) + compared
        return Memory(once=stored + timeline.sessions + twins * state)

    def state(self, parts: Parts) -> dict[str, Any]:
        """What requests need.

        ``stored``: rounds and models for erasers; ``ends``: final models of sessions; ``twins``: states of other runs; ``old``:
        models before the clients' first round, by request; ``step``: measures right after the last request; ``level``: loss on
        the clients' samples before it; ``factor``: of updates that are negated in this round; ``known``: sessions whose models
        the initializer may have; ``tainted``: those whose models descend from erased clients; ``taint``: weight of such models
        in the start of this session; ``costs`` of all requests; ``event``: facts about the last one.
        """
        dicts: dict[str, Any] = {name: {} for name in ("stored", "ends", "twins", "old", "step", "event")}
        return dicts | {
            "factor": 0.0,
            "level": math.nan,
            "known": [],
            "tainted": [],
            "taint": math.nan,
            "costs": dict.fromkeys(COSTS, 0),
        }

    # Between rounds.

    def open(self, parts: Parts, state: RunState, t: int) -> None:
        if self._seen is None or parts.timeline is not self._seen[1]:
            self._worlds.planned, self._seen = parts.timeline, None
        kept, later = state.features[self.name], [k for k, request in enumerate(self.requests) if request.at >= t]
        first = t == self._worlds.planned.session_span(t)[0]
        if kept["factor"]:  # they took part once more in the last round
            for ids in (request.ids for request in self.requests if request.at == t - 1):
                self._forget(parts, state, ids)
                self._clear(state, ids)
            kept["factor"] = 0.0
        if later:
            note_end(kept["ends"], self._worlds.planned, state)
        for k in later:
            if t == self._worlds.begins(k) and (self._compares or self.requests[k].eraser.memory == "counterfactual"):
                twin = copied(state, self.name)
                twin.totals = dict.fromkeys(state.totals, 0)
                twin.features[self.name] = {"ends": dict(kept["ends"])}
                kept["twins"][f"without.{k}"] = twin.tensors()
                kept["old"] |= {f"{k}.w": state.w.clone(), f"{k}.b": state.b.clone()}
        if first and t:
            ended = int(self._worlds.planned.session_of_round[t - 1])
            kept["known"] = kept["known"] + [ended] * (ended >= self._worlds.planned.pilot)
            kept["tainted"] = kept["tainted"] + [ended] * (kept["taint"] > 0)
        before = parts.timeline
        for k in later:
            if self.requests[k].at == t:
                self._handle(parts, state, k, t)
        if parts.timeline is not before:  # the counterfactual's alarms have begun other sessions
            self._worlds.planned = parts.timeline
        handled = sum(request.at <= t for request in self.requests)
        if self._seen is None or self._seen[0] != handled:
            self._seen = handled, self._worlds.actual(t)
            parts.timeline = self._seen[1]

    def begin(self, parts: Parts, state: RunState, t: int, session: bool, replaced: bool) -> bool:
        kept = state.features[self.name]
        if session and not math.isnan(kept["taint"]):
            mixed = parts.initializer.mixture(state.initializer, kept["known"])
            tainted = sum(weight for z, weight in mixed.items() if z in kept["tainted"])
            carries = 0.0 if parts.initializer.fresh else float(kept["taint"] > 0)
            kept["taint"] = tainted if mixed else carries
        return replaced

    @property
    def _compares(self) -> bool:
        return self._parts.settings.evaluation.erased

    def _handle(self, parts: Parts, state: RunState, number: int, t: int) -> None:
        """Erase the clients of a request from model, memories and stored models."""
        request, kept = self.requests[number], state.features[self.name]
        eraser, settings = request.eraser, request.eraser.settings
        self._forget(parts, state, request.ids)
        names = request.names.shown(request.ids.tolist())
        kept["event"] = {"eraser": settings.name, "clients": names, "first_touch": None}
        if self._worlds.begins(number) is None:
            return
        later = {f"without.{k}" for k in range(number, len(self.requests))}
        kept["twins"] = {name: twin for name, twin in kept["twins"].items() if name in later}
        if self._compares:
            unerased = copied(state, self.name)
            unerased.features[self.name] = {"ends": {}}
            kept["twins"]["continued"] = unerased.tensors()
            if parts.settings.evaluation.relearn_epochs:
                kept["level"] = self._worlds.erased(number).loss((state.w, state.b))
        twin = self._twins.at(parts, kept["twins"], f"without.{number}", t)
        step = self._step(parts, state, number, twin if eraser.memory == "counterfactual" else None, kept)
        how, sessions = settings.store or eraser.store, concerned(self._worlds, state, step, number)
        w = eraser.erase(step)
        kept["taint"] = float(eraser.memory == "keep")
        if eraser.memory == "counterfactual":
            assert twin is not None
            self._become(parts, state, twin, how == "erase")
            step.costs |= self._retraining(twin, number)
            if settings.after == "returns":  # they arrive in this round
                keep_means(parts.algorithm, state, self._worlds.planned, self._worlds.actual(t).at(t))
            if how != "erase":
                revise(self._worlds, state, step, number, kept)
        else:
            state.w = w.clone()
            revise(self._worlds, state, step, number, kept)
            if eraser.memory == "setting" and settings.memory == "reset":
                forget_all(parts, state)
            keep_means(parts.algorithm, state, self._worlds.planned, self._worlds.actual(t).at(t))
        self._clear(state, request.ids)
        kept["factor"] = step.factor
        step.settle(eraser.memory == "counterfactual")
        step.costs["stored"] = BYTES * parts.layout.size * self._worlds.stored_vectors(number)
        kept["costs"] = {name: kept["costs"][name] + value for name, value in step.costs.items()}
        kept["stored"] = self._still_stored(kept["stored"], number)
        first = int(self._worlds.touched(number)[0]) + 1
        kept["event"] |= {"first_touch": first, **step.facts, "store": how, "sessions": sessions}
        kept["event"] |= {"costs": step.costs}
        if self._compares:
            kept["step"] = self._measures(parts, state, number, t, (state.w, state.b))

    def _step(self, parts: Parts, state: RunState, number: int, twin: RunState | None, kept: dict[str, Any]) -> Step:
        request = self.requests[number]
        own, others = f"{number}.", (state.counts > 0).nonzero()[:, 0].tolist()
        ends = {
            int(name[:-2]): (w, kept["ends"][f"{name[:-2]}.b"]) for name, w in kept["ends"].items() if name[-1] == "w"
        }
        return Step(
            parts=parts,
            state=state,
            world=self._worlds.planned,
            ids=request.ids.tolist(),
            t=request.at,
            spans=self._worlds.spans(number),
            others=others,
            stored={name.removeprefix(own): value for name, value in kept["stored"].items() if name.startswith(own)},
            ends=ends,
            twin=twin,
        )

    def _forget(self, parts: Parts, state: RunState, ids: Ints) -> None:
        """Erased clients lose all that is kept of them, and are as never seen."""
        left = torch.from_numpy(ids)
        for feature in parts.features:
            feature.forget(parts, state, left, left=True)
        written = left[state.written.cpu()[left] > 0]
        clear(parts, state, written)
        state.seen[left], state.counts[left] = False, 0
        parts.algorithm.forget(state.extra, left)

    def _clear(self, state: RunState, ids: Ints) -> None:
        """What erasers have kept of erased clients is deleted."""
        for name in self._rows:
            rows = state.memory[f"{self.name}.{name}"]
            rows.index_fill_(0, torch.from_numpy(ids).to(rows.device), 0)

    def _become(self, parts: Parts, state: RunState, twin: RunState, stored: bool) -> None:
        """The run goes on as its counterfactual, with the models that its initializer has ``stored``, or its own."""
        other, kept = copied(twin, self.name), state.features[self.name]
        written = ((state.written > 0) | (twin.written > 0)).nonzero()[:, 0]
        for name, rows in other.memory.items():  # in place: they may be on disk
            state.memory[name][written.to(rows.device)] = rows[written.to(rows.device)]
        other.memory, other.totals, other.features[self.name] = state.memory, state.totals, kept
        if stored:
            kept["ends"], kept["tainted"] = dict(twin.features[self.name]["ends"]), []
        else:
            other.initializer = state.initializer
        vars(state).update(other.tensors())
        state.written[written] = state.round + 1
        for feature in parts.features:
            if feature is not self:
                feature.open(parts, state, state.round)  # alarms may have begun other sessions

    def _retraining(self, twin: RunState, number: int) -> dict[str, int]:
        """What it cost to train the counterfactual of a request, from its beginning."""
        begins, at = self._worlds.begins(number), self.requests[number].at
        totals = {name: int(twin.totals[name]) for name in ("steps", "bytes_down", "bytes_up", "gradient_rounds")}
        rounds = at - (at if begins is None else begins) + totals["gradient_rounds"]
        names = {"gradients_retained": "steps", "down": "bytes_down", "up": "bytes_up"}
        return {name: totals[of] for name, of in names.items()} | {"rounds": rounds}

    def _still_stored(self, stored: dict[str, Tensor], number: int) -> dict[str, Tensor]:
        """What is kept for later requests: neither models that the erased clients had a part in, nor their updates."""
        found: dict[str, Tensor] = {}
        first, erased = int(self._worlds.touched(number)[0]), self.requests[number].ids
        for name, value in stored.items():
            of, what, t, part = name.split(".")
            if int(of) <= number or (what == "model" and int(t) > first):
                continue
            if what == "round" and part != "w":
                stays = ~np.isin(stored[f"{of}.round.{t}.ids"].cpu(), erased)
                value = value[torch.from_numpy(stays).to(value.device)]
            found[name] = value
        return found

    # In a round.

    def plan(self, parts: Parts, state: RunState, plan: RoundPlan) -> RoundPlan:
        """Store the model; and let erased clients take part once more, if their eraser asks for it."""
        kept, t = state.features[self.name], plan.t
        for k, request in enumerate(self.requests):
            if t < request.at and request.eraser.keeps_model(t):
                kept["stored"] |= {f"{k}.model.{t}.w": state.w.clone(), f"{k}.model.{t}.b": state.b.clone()}
        if not kept["factor"]:
            return plan if plan.ids else self._idle(state, plan)
        request = next(request for request in self.requests if request.at == t)
        held = dict(zip(plan.ids, plan.shard_ids, strict=True))
        held |= {client: held_by(self._worlds.planned, client, t) for client in request.ids.tolist()}
        cohort = Assignment(*(np.array(part, dtype=np.int64) for part in zip(*sorted(held.items()), strict=True)))
        return replace(plan, **participants(self._worlds.planned, cohort))

    def _idle(self, state: RunState, plan: RoundPlan) -> RoundPlan:
        """Store that nobody took part in a round, for later requests."""
        nobody = torch.zeros(0, dtype=torch.int64), state.w.new_zeros(0, len(state.w)), state.w.clone()
        for k, request in enumerate(self.requests):
            if plan.t < request.at and request.eraser.keeps_round(plan.t, request.at):
                names = (f"{k}.round.{plan.t}.{part}" for part in ("ids", "W", "w"))
                state.features[self.name]["stored"] |= dict(zip(names, nobody, strict=True))
        return plan

    def after(self, r: RoundContext) -> None:
        """Negate updates of erased clients, and store what erasers need."""
        kept, t = r.state.features[self.name], r.plan.t
        others = torch.ones(len(r.plan.ids), dtype=torch.bool)
        if kept["factor"]:
            erased = next(request for request in self.requests if request.at == t).ids
            others = torch.from_numpy(~np.isin(r.plan.ids, erased))
            taken = sum(steps for steps, other in zip(r.cohort.plan.steps, others, strict=True) if not other)
            for costs in (kept["costs"], kept["event"]["costs"]):
                costs["gradients_erased"] += taken
            negated = r.started - kept["factor"] * (r.received - r.started)
            r.received = r.received.where(others.unsqueeze(1).to(r.received.device), negated)
        for k, request in enumerate(self.requests):
            if t < request.at and request.eraser.keeps_round(t, request.at):
                W = r.received[others.to(r.received.device)]
                kept["stored"] |= {f"{k}.round.{t}.ids": torch.tensor(r.plan.ids)[others], f"{k}.round.{t}.W": W}
                kept["stored"][f"{k}.round.{t}.w"] = r.w.clone()
        if "last" in self._rows:
            r.memory["erasure.last"] = r.received.clone()
        if "movement" in self._rows:
            eraser = next(request.eraser for request in self.requests if "movement" in request.eraser.keeps)
            r.memory["erasure.movement"] = r.memory["erasure.movement"] + eraser.moved(r.received, r.w, r.parts.w0)

    def close(self, r: RoundContext) -> None:
        stored, t = r.state.features[self.name]["stored"], r.plan.t
        for k, request in enumerate(self.requests):
            if request.eraser.keeps_model_after and f"{k}.round.{t}.w" in stored:
                stored[f"{k}.round.{t}.w"] = r.state.w.clone()

    def record(self, r: RoundContext) -> dict[str, Tensor | float]:
        """Measures after the round, at the start of its session, and right after a request before it; costs of requests."""
        kept, t, timeline = r.state.features[self.name], r.plan.t, r.parts.timeline
        found = dict.fromkeys(
            [*MEASURES, *RELEARNED, *(f"{name}_{at}" for at in ("start", "step") for name in MAIN)], math.nan
        )
        handled = [request for request in self.requests if request.at <= t]
        if handled and t == handled[-1].at:
            r.events.append({"kind": REQUEST, "round": t + 1, **kept["event"]})
        number = self._worlds.last(t)
        if self._compares and number is not None:
            measures = partial(self._measures, r.parts, r.state, number, t + 1)
            if t == timeline.session_span(t)[0]:
                start = measures((r.w, r.state.b), starts=True)
                found |= {f"{name}_start": start.get(name, math.nan) for name in MAIN}
            if (t + 1) % r.parts.settings.evaluation.every == 0 or timeline.ends_session(t):
                found |= measures((r.state.w, r.state.b))
            if t + 1 == timeline.rounds and r.parts.settings.evaluation.relearn_epochs:
                found |= self._relearned(r.parts, r.state, number, t)
            if t == self.requests[number].at:
                found |= {f"{name}_step": kept["step"].get(name, math.nan) for name in MAIN}
        return {
            "erased": float(sum(len(request.ids) for request in handled)),
            **{f"erased_{name}": value for name, value in found.items()},
            "tainted_weight": kept["taint"],
            **{f"erase_{name}": float(value) for name, value in kept["costs"].items()},
        }

    def _relearned(self, parts: Parts, state: RunState, number: int, t: int) -> dict[str, float]:
        """Epochs until the erased clients are learned again, by the last model and by the counterfactual's."""
        kept, most = state.features[self.name], parts.settings.evaluation.relearn_epochs
        twin, erased = self._twins.at(parts, kept["twins"], f"without.{number}", t + 1), self._worlds.erased(number)
        assert twin is not None
        own, other = (
            epochs(self._step(parts, each, number, twin, kept), erased, t, kept["level"], most)
            for each in (state, twin)
        )
        return {"relearned": own, "relearned_counterfactual": other}

    def _measures(
        self, parts: Parts, state: RunState, number: int, t: int, model: Start, starts: bool = False
    ) -> dict[str, float]:
        """Measures of a model before round ``t``, of a request; or with ``starts`` at the start of the round before it."""
        kept = state.features[self.name]
        found: dict[str, Start] = {}
        for name in (f"without.{number}", "continued"):
            if (twin := self._twins.at(parts, kept["twins"], name, t)) is not None:
                found[name] = self._twins.starts[name] if starts else twin.w, twin.b
        if len(found) < 2 or not parts.hardware.leads:
            return {}
        without, continued = found.values()
        old = kept["old"][f"{number}.w"], kept["old"][f"{number}.b"]
        return self._worlds.erased(number).measures(t - 1, model, without, continued, old)
