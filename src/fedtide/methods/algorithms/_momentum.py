"""Client-level momentum: what FedCM, MoFedSAM, FedWCM and FedWCM-X share."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fedtide.methods.algorithms.base import Algorithm, AlgorithmSettings, Local, Round, Tunable


class MomentumSettings(AlgorithmSettings):
    server_lr: float = Tunable(1.0, low=0.1, high=1.5, gt=0, description="server step size eta_g")
    momentum_norm: Literal["actual", "nominal"] = Field(
        "actual",
        description="Delta is the displacement divided by the client's local steps, or by the unrounded count E n / B",
    )
    nominal_n: Literal["mean", "client0"] = Field(
        "mean", description="n of the nominal count: mean client size, or size of the first client"
    )
    server_step: Literal["displacement", "gradient_units"] = Field(
        "displacement", description="the server moves by eta_g times the mean displacement, or by eta_g Delta"
    )


class ClientMomentum(Algorithm):
    """Local steps mix the gradient with the last global direction Delta, in units of a gradient: (1) to (3) of ``fedcm``."""

    settings: MomentumSettings

    server = ("Delta",)
    down: Sequence[str] = ("w", "Delta")
    optimizer = "sgd"
    admits: Sequence[str] = ("sums",)

    @abstractmethod
    def alpha(self, r: Round) -> float:
        """Weight of the gradient in this round."""

    def local(self, r: Round) -> Local:
        alpha = self.alpha(r)
        return Local(scale=alpha, linear=(1 - alpha) * r.server.Delta) if alpha < 1 else Local()  # (1)

    def finish(self, r: Round) -> Tensor:
        s = self.settings
        r.server.Delta = r.mean((r.w - r.W) / (r.lr * self.step_count(r)))  # (2)
        if s.server_step == "gradient_units":
            x: Tensor = r.w - s.server_lr * r.server.Delta
            return x
        return r.average(s.server_lr)  # (3)

    def step_count(self, r: Round) -> Tensor:
        """B_k [C, 1], or the nominal count []."""
        s = self.settings
        if s.momentum_norm == "actual" or "epochs" not in r.local.unit:
            return r.effective_steps
        sizes = r.services.population_counts().sum(1)
        n = sizes[0] if s.nominal_n == "client0" else sizes.mean()
        return r.local.amount * n.to(r.w) / r.local.step_samples

    def kappa(self, r: Round) -> Tensor:
        """Local steps over the count that a displacement is divided by [C, 1]."""
        return (r.effective_steps / self.step_count(r)).expand_as(r.weights)

    def record(self, r: Round) -> dict[str, Tensor | float]:
        """Weights of the participants and kappa, the factor by which Delta grows because of the count it is divided by.

        For the server, alpha and the norm of Delta as the next round receives them.
        """
        norm = float(torch.linalg.vector_norm(r.server.Delta))
        return {"weight": r.weights, "kappa": self.kappa(r), "alpha": self.alpha(r), "momentum_norm": norm}
