"""APFL."""

from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field, field_validator
from torch import Tensor

from fedtide.methods.algorithms._whole_models import WholeModels
from fedtide.methods.algorithms.base import (
    AlgorithmSettings,
    Extra,
    Gradient,
    GradientAt,
    Round,
    Served,
    ServedTo,
    Tunable,
)
from fedtide.training.engine.flat import Layout
from fedtide.training.engine.local import clip


class Apfl(WholeModels):
    """Adaptive personalized federated learning (Deng et al. 2020): mixtures of an own and the global model.

    Participants train y, which is averaged as in FedAvg, and their own model v; on every batch B::

        m = alpha v + (1 - alpha) y                                                                                 (1)
        y <- local step along g_B(y)                                                                                (2)
        v <- local step along alpha g_B(m)                                                                          (3)
        alpha <- alpha - eta_a <v - y, g_B(m)>, between 0 and 1      ``adaptive: paper``, on a round's first batch   (4)

    Local steps have the run's rate, clip and decay. Clients are served ``alpha v + (1 - alpha) w`` (``serve: own``: y as they
    last had it, in the place of w). A client never seen starts v from the model it receives, or from the session's first
    one (``newcomers: initial``).

    Only the abstract (arXiv:2003.13461) was available: formulas are those of programs, and ``paper`` in (4) is unchecked. The
    authors' program, FedTorch, is ``mix: after`` (y in (1) after its step), ``serve: own`` and ``adaptive: release``: v and y
    in (4) after their steps, with the slope ``(alpha^2 + (1 - alpha)^2) <v - y, g_B(m)> + 0.02 alpha``. It mixes outputs, not
    parameters, which differs unless models are linear.

    References:
        Deng et al. 2020. Adaptive Personalized Federated Learning.
    """

    class Settings(AlgorithmSettings):
        name: str = "apfl"
        alpha: float = Tunable(
            0.5, low=0.1, high=0.9, ge=0, le=1, description="share alpha of the own model; the first one if adaptive"
        )
        adaptive: Literal["no", "paper", "release"] = Field("no", description="whether every client's alpha is learned")
        alpha_lr: float | None = Field(
            None, gt=0, description="learning rate eta_a of alpha, with the schedule; null: the round's"
        )
        mix: Literal["before", "after"] = Field("before", description="mixture uses y before or after its step")
        serve: Literal["current", "own"] = Field(
            "current", description="model mixed with v for serving: the global model, or the client's last y"
        )
        newcomers: Literal["current", "initial"] = Field(
            "current",
            description="start of v for a new client: the current model, or the session's first one",
        )

        @field_validator("adaptive", mode="before")
        @classmethod
        def _no_is_a_word(cls, value: Any) -> Any:
            return "no" if value is False else value  # YAML's ``no``

    settings: Settings

    admits = ("rules",)
    optimizer = "plain_sgd"

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.client = ("v", "alpha", *["y"] * (settings.serve == "own"))
        self.server = ["w0"] * (settings.newcomers == "initial")

    def width(self, name: str, layout: Layout, extra: Extra) -> int:
        return 1 if name == "alpha" else layout.size

    def start(self, r: Round) -> Tensor:
        s = self.settings
        if self.server and r.session.round == 0:
            r.server.w0 = r.w
        r.client.v = torch.where(r.seen > 0, r.client.v, r.server.w0 if self.server else r.w)
        r.client.alpha = torch.where(r.seen > 0, r.client.alpha, s.alpha)
        if s.adaptive != "no":
            r.carry(first=torch.ones_like(r.seen))  # who has not seen a batch yet
        return r.w

    def gradients_in(self, step: int) -> int:
        return 2

    def direction(self, grad: Gradient, W: Tensor, r: Round) -> Tensor | GradientAt:
        s, v, alpha = self.settings, r.client.v, r.client.alpha
        g = grad(W) if s.mix == "after" or s.adaptive == "release" else None
        moved = W if g is None else stepped(W, g.clone(), r)
        m = alpha * v + (1 - alpha) * (moved if s.mix == "after" else W)  # (1)
        gm = grad(m)
        own = stepped(v, alpha * gm, r)
        if s.adaptive != "no" and r.client.first.any():
            rate = r.lr if s.alpha_lr is None else r.scheduled(s.alpha_lr)
            if s.adaptive == "paper":
                slope = ((v - W) * gm).sum(1, keepdim=True)
            else:
                slope = ((own - moved) * gm).sum(1, keepdim=True)
                slope = (alpha**2 + (1 - alpha) ** 2) * slope + 0.02 * alpha
            r.client.alpha = torch.where(r.client.first > 0, (alpha - rate * slope).clamp(0, 1), alpha)  # (4)
            r.client.first = torch.zeros_like(r.client.first)
        r.client.v = own  # (3)
        return GradientAt(W) if g is None else g  # (2)

    def finish(self, r: Round) -> Tensor:
        if self.settings.serve == "own":
            r.client.y = r.trained.W
        return r.average()

    def served(self, s: ServedTo) -> Served:
        """alpha v + (1 - alpha) w; w for a client without."""
        alpha, shared = s.client.alpha, s.client.y if self.settings.serve == "own" else s.w
        mixed = alpha * s.client.v + (1 - alpha) * shared
        return Served(torch.where(s.seen > 0, mixed, s.w), np.arange(len(s.ids)))

    def record(self, r: Round) -> dict[str, Tensor | float]:
        """alpha of every participant, where it is learned."""
        return {"alpha": r.client.alpha} if self.settings.adaptive != "no" else {}


def stepped(x: Tensor, v: Tensor, r: Round) -> Tensor:
    """x [c, d] after a local step of plain SGD along the gradients v [c, d], clipped and decayed as the run's; v is changed."""
    local, decay = r.local, r.local.gradient_decay
    if decay and local.clip_scope == "total_with_decay":
        v.add_(x, alpha=decay)
    if local.clip is not None:
        clip(v, local.clip)
    if decay and local.clip_scope != "total_with_decay":
        v.add_(x, alpha=decay)
    return x - r.job.rate * v
