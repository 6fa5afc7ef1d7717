"""What methods share whose clients keep a part of the model to themselves."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedtide.methods.algorithms.base import (
    Algorithm,
    AlgorithmSettings,
    Extra,
    Problem,
    Round,
    RunPreview,
    Served,
    ServedTo,
)
from fedtide.training.engine.flat import Layout


class OwnPartSettings(AlgorithmSettings):
    """Settings of methods with a part per client."""

    newcomers: Literal["initial", "mean"] = Field(
        "initial",
        description="start of a client's own part: initial: from the session's first model (untrained unless it "
        "continues one), and no parts are sent; mean: the mean of the participants' parts, which they "
        "send",
    )


class OwnPart(Algorithm):
    """Every client keeps a part P of the model, by default the last layer; the rest is averaged, as in ``fedper``.

    Unchanged entries stay exactly as they are; a mean of equal numbers would round.

    Attributes:
        own_buffers: whether the network's floating buffers are part of P; they follow the parameters in ``own``.
    """

    settings: OwnPartSettings

    needs: Sequence[str] = ("body",)
    models = ("global", "personal")
    client = ("own",)
    own_buffers = False

    def __init__(self, settings: OwnPartSettings) -> None:
        super().__init__(settings)
        self.admits = ("rules",) if settings.newcomers == "mean" else ()  # a rule would see parts that are not sent

    def part(self, layout: Layout) -> Tensor:
        """P, bool [d]."""
        return layout.mask("head")

    def bind(self, problem: Problem) -> None:
        super().bind(problem)
        self.P = self.part(problem.layout)

    def width(self, name: str, layout: Layout, extra: Extra) -> int:
        return int(self.part(layout).sum()) + (layout.buffer_size if self.own_buffers else 0)

    def shared(self, layout: Layout) -> Tensor | None:
        if self.settings.newcomers == "mean":
            return None
        buffers = torch.full((layout.buffer_size,), not self.own_buffers, device=self.part(layout).device)
        return torch.cat([~self.part(layout), buffers])

    def composed(self, w: Tensor, b: Tensor, own: Tensor, known: Tensor) -> tuple[Tensor, Tensor | None]:
        """Clients' models [n, d], and their buffers [n, q] if they are their own.

        Args:
            w, b: the global models [n, d] and buffers. own, known: the clients' parts, and which [n, 1] have one.
        """
        found, count = w.clone(), int(self.P.sum())
        found[:, self.P] = torch.where(known > 0, own[:, :count], w[:, self.P])
        return found, torch.where(known > 0, own[:, count:], b) if self.own_buffers else None

    def finish(self, r: Round) -> Tensor:
        own, w = r.trained.W[:, self.P], r.average()
        r.client.own = torch.cat([own, r.trained.b], 1) if self.own_buffers else own
        return w if self.settings.newcomers == "mean" else torch.where(self.P, r.w, w)

    def served(self, s: ServedTo) -> Served:
        """The global model with each client's own part."""
        everybody = np.arange(len(s.ids))
        models, buffers = self.composed(s.w.expand(len(everybody), -1), s.b, s.client.own, s.seen)
        return Served(models, everybody, buffers)

    def advice(self, run: RunPreview) -> list[str]:
        if not run.fresh_starts:
            return []
        return [
            f"algorithm {self.settings.name} keeps parts of models across sessions, but sessions start from an "
            "untrained model, whose other layers they do not match; use client_state.on_session_start: reset, or an "
            "initializer like previous or average"
        ]
