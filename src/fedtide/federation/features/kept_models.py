"""Clients' models that are kept for evaluation."""

from fedtide.federation.types import Chosen, Feature, Parts, RoundContext, RunState
from fedtide.training.engine.flat import Layout

LATEST, LAST_SERVED = "latest", "last_served"
"""Rows kept for evaluation: each client's latest local model, and the one that it was served before it left."""


class Latest(Feature):
    """Each client's latest local model; before it takes part in a session, the session's initial model."""

    name = LATEST
    rehearses, lasting = False, True

    def rows(self, chosen: Chosen, layout: Layout) -> dict[str, int]:
        return {LATEST: layout.size}

    def begin(self, parts: Parts, state: RunState, t: int, session: bool, replaced: bool) -> bool:
        if session:
            state.memory[LATEST].copy_(state.w)
            state.written.fill_(t + 1)
        return replaced

    def after(self, r: RoundContext) -> None:
        r.memory[LATEST] = r.cohort.W


class LastServed(Feature):
    """The model that each client was served before it left; the scoring of clients writes it."""

    name = LAST_SERVED
    rehearses, lasting, gathers = False, True, False

    def rows(self, chosen: Chosen, layout: Layout) -> dict[str, int]:
        return {LAST_SERVED: layout.size + layout.buffer_size}
