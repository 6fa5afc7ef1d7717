"""FedCM."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fedtide.algorithms.base import Algorithm, AlgorithmSettings, Local, Round, Tunable


class MomentumSettings(AlgorithmSettings):
    """Settings of all algorithms with client-level momentum."""

    server_lr: float = Tunable(1.0, low=0.1, high=1.5, gt=0, description="server step size eta_g")
    momentum_norm: Literal["actual", "nominal"] = Field(
        "actual", description="Delta divides a displacement by the client's local steps, or by the real number E n / B"
    )
    nominal_n: Literal["mean", "client0"] = Field(
        "mean", description="n of the nominal count: mean client size, or size of the first client"
    )
    server_step: Literal["displacement", "gradient_units"] = Field(
        "displacement", description="the server moves by eta_g times the mean displacement, or by eta_g Delta"
    )


class FedCm(Algorithm):
    """Client-level momentum (Xu et al. 2021): local steps mix the gradient with the last global direction Delta.

    Local steps follow ``v = alpha g + (1 - alpha) Delta``. With ``u_k = x - y_k`` the server sets
    ``Delta+ = sum_k p_k u_k / (lr B_k)``, in units of a gradient (B_k: displacement per unit gradient, the number of local
    steps unless there is local momentum), and ``x+ = x - eta_g sum_k p_k u_k``; the paper's ``x+ = x - eta_g Delta+`` is
    ``gradient_units``. ``alpha = 1`` is FedAvg to the bit.

    The authors' program divides by the nominal count E n / B of unrounded batches (``momentum_norm: nominal``). Short last
    batches make the true count kappa times larger, and Delta blows up once kappa (1 - alpha) > 1; published failures of
    FedCM on long-tailed data follow this number. Units other than epochs have no nominal count.
    """

    class Settings(MomentumSettings):
        """Settings of FedCM."""

        name: str = "fedcm"
        alpha: float = Tunable(
            0.1, low=0.02, high=1.0, gt=0, le=1, description="weight of the gradient in a local step"
        )

    settings: Settings

    server = ("Delta",)
    down: tuple[str, ...] = ("w", "Delta")

    def alpha(self, r: Round) -> float:
        """Weight of the gradient in this round."""
        return float(self.settings.alpha)

    def local(self, r: Round) -> Local:
        """v = alpha g + (1 - alpha) Delta."""
        alpha = self.alpha(r)
        return Local(scale=alpha, linear=(1 - alpha) * r.server.Delta) if alpha < 1 else Local()

    def step_count(self, r: Round) -> Tensor:
        """What a displacement is divided by, besides lr, to give a gradient: B_k [C, 1], or the nominal count []."""
        s = self.settings
        if s.momentum_norm == "actual" or "epochs" not in r.local.unit:
            return r.effective_steps
        sizes = r.services.population_counts().sum(1)
        n = sizes[0] if s.nominal_n == "client0" else sizes.mean()
        return r.local.amount * n.to(r.w) / r.local.batch_size

    def record(self, r: Round) -> dict[str, Tensor | float]:
        """Weights of the participants and kappa, by which factor Delta grew for the way its displacements are divided.

        Of the server alpha and the norm of Delta, which the next round will receive.
        """
        norm = float(torch.linalg.vector_norm(r.server.Delta))
        return {"weight": r.weights, "kappa": self.kappa(r), "alpha": self.alpha(r), "momentum_norm": norm}

    def kappa(self, r: Round) -> Tensor:
        """Local steps over the count that a displacement is divided by [C, 1]."""
        return (r.effective_steps / self.step_count(r)).expand_as(r.weights)

    def finish(self, r: Round) -> Tensor:
        """Delta+ and x+."""
        s = self.settings
        r.server.Delta = r.mean((r.w - r.W) / (r.lr * self.step_count(r)))
        if s.server_step == "gradient_units":
            x: Tensor = r.w - s.server_lr * r.server.Delta
            return x
        return r.average(s.server_lr)
