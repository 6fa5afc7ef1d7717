"""The model that clients receive, where the server compresses what it sends.

Server and clients have a copy w~ of the model w in common. Clients train from the copy, their update U moves w itself, and the
server sends Q of what the copy then lacks::

    w+ = w + U(w~),   w~+ = w~ + Q(w+ - w~)

so that w - w~ is an error feedback: what Q has lost of an update is part of the next one (Gruntkowska et al. 2023, EF21-P). If
Q is a contraction, the error is no longer than some updates, and vanishes with them. At the start of a session, and where a
detector replaces the model, w~ = w and clients have received nothing.
"""

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from fedtide.core.errors import SettingsError
from fedtide.federation.traffic import BYTES
from fedtide.federation.types import Channel, Chosen, Feature, Memory, Parts, RoundContext, RunState
from fedtide.methods.algorithms.base import overrides
from fedtide.methods.uplink.base import Compression
from fedtide.training.engine.flat import Layout
from fedtide.world.dataset import Dataset
from fedtide.world.timeline import Timeline


class Downlink(Feature, Channel):
    """Keeps ``w`` [d], the copy, and ``received`` int64 [N]: each client has the model of this round (from 1), 0 for none."""

    name = "downlink"

    def __init__(self, link: Compression) -> None:
        self.link = link

    def refuses(self, chosen: Chosen, timeline: Timeline, data: Dataset) -> str | None:
        if timeline.notes.get("stateless"):
            scenario = chosen.settings.scenario.name
            return f"downlink requires stateful clients, but scenario {scenario} uses stateless clients"
        return None

    def bind(self, parts: Parts) -> None:
        self.link.bind([self.link], parts.layout)
        if problem := self._misfit(parts):
            raise SettingsError(f"downlink {self.link.settings.name}: {problem}")

    def _misfit(self, parts: Parts) -> str | None:
        """Whether the link loses more than it gets, or does not go with the rest of a run."""
        settings, algorithm, link = parts.settings, parts.algorithm, self.link.settings
        name, others = settings.algorithm.name, "use one like fedavg, scaffold or fedbuff"
        feedback = type(link).model_fields.get("error_feedback")
        trains_elsewhere = overrides(algorithm, "start", "phases")
        if remedy := self.link.remedy(parts.layout.size):
            return f"the compressor is not contractive with these settings, so error feedback can diverge; {remedy}"
        if getattr(link, "memory_decay", 1) != 1:
            return (
                "memory_decay has no effect, since the compression error is always part of the next update; remove it"
            )
        if feedback is not None and feedback.default is True and not getattr(link, "error_feedback", True):
            return (
                "error_feedback = false has no effect, since the compression error is always part of the next "
                "update; remove it"
            )
        if overrides(algorithm, "served") or "w" not in algorithm.down:
            return f"algorithm {name} does not send the same model to all clients; {others}"
        if algorithm.shared(parts.layout) is not None:
            return f"algorithm {name} sends only a part of the model; {others}"
        if trains_elsewhere and "downlink" not in algorithm.admits:
            return f"algorithm {name} trains clients from another model than the one that is sent; {others}"
        return None

    def memory(self, chosen: Chosen, timeline: Timeline, layout: Layout) -> Memory:
        return Memory(once=3)  # the copy, what it lacks and what is sent of it

    def state(self, parts: Parts) -> dict[str, Any]:
        return self._fresh(parts, parts.w0)

    def _fresh(self, parts: Parts, w: Tensor) -> dict[str, Any]:
        return {"w": w.clone(), "received": torch.zeros(parts.timeline.num_clients, dtype=torch.int64)}

    def begin(self, parts: Parts, state: RunState, t: int, session: bool, replaced: bool) -> bool:
        """Where the model is replaced, the copy is the model, and nobody has it."""
        if replaced:
            state.features[self.name] = self._fresh(parts, state.w)
        return replaced

    def forget(self, parts: Parts, state: RunState, clients: Tensor, left: bool) -> None:
        if left:
            self.leave(state, clients.tolist())

    def model(self, state: RunState) -> Tensor:
        copy: Tensor = state.features[self.name]["w"]
        return copy

    def receive(self, parts: Parts, state: RunState, clients: Sequence[int], t: int) -> list[int]:
        """An update for every one that a client has missed, or the whole model.

        One that starts again before the model has changed receives one, too, as without compression it receives the model
        again.
        """
        size, down = parts.layout.size, parts.payload(state.extra).down
        bits, model = self.link.bits(size), BYTES * size
        update = model if bits is None else -(-bits // 8)
        received: Tensor = state.features[self.name]["received"]
        missed = [max(1, t + 1 - last) if last else None for last in received[list(clients)].tolist()]
        received[list(clients)] = t + 1
        return [down if number is None else down - max(0, model - number * update) for number in missed]

    def leave(self, state: RunState, clients: Collection[int]) -> None:
        """Clients that leave take their copy along."""
        if clients:
            state.features[self.name]["received"][list(clients)] = 0

    def close(self, r: RoundContext) -> None:
        """Apply to the model what the algorithm has done to the copy, and send Q of what the copy then lacks."""
        state, copy = r.state, r.sent
        if not torch.equal(copy, r.w):
            state.w = state.w + (r.w - copy)
        lacks = state.w - copy
        if self.link.exact(len(lacks)) or not bool(lacks.isfinite().all()):
            copy = state.w.clone()
        else:
            purpose, keys = "downlink.gradient" if r.rehearsal else "downlink", r.plan.keys or (r.plan.t,)
            copy = copy + self.link.compressed(lacks, lambda: r.parts.randomness.generator(purpose, *keys))
        state.features[self.name] = {**state.features[self.name], "w": copy}
        r.notes[self.name] = torch.linalg.vector_norm(state.w - copy)

    def record(self, r: RoundContext) -> dict[str, Tensor | float]:
        """Length of what the copy still lacks."""
        left = r.notes[self.name]
        return {"downlink_error": float(left) if left.isfinite() else torch.nan}
