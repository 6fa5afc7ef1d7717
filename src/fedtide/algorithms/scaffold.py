"""SCAFFOLD."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fedtide.algorithms.base import Algorithm, AlgorithmSettings, Local, Round, ServerVector, Tunable


class Scaffold(Algorithm):
    """Control variates against client drift (Karimireddy et al. 2020), options I and II.

    Local gradients become ``g - c_k + c`` (eq. 3). Option II sets ``c_k+ = c_k - c + (w - y_k) / (a_k eta)`` (eq. 4), with
    ``a_k`` the displacement per unit gradient: the number of steps, or with local momentum the norm of its weights
    (FedNova's recursion, for momentum that starts at zero every round whatever ``local.momentum_scope``); with the plain count
    the variates come out too large by up to 1 / (1 - momentum).
    The FedSSG-family reference differs in named settings: ``relative_size`` divides c by omega_k = n_k / mean n and
    multiplies the change by it, ``control_lr: initial`` divides by the undecayed rate, ``divisor: mean`` by the steps of a
    client of mean size.
    """

    class Settings(AlgorithmSettings):
        """Settings of SCAFFOLD."""

        name: str = "scaffold"
        option: Literal["I", "II"] = Field(
            "II", description="I: gradient over all local data at w; II: from the local steps"
        )
        server_lr: float = Tunable(1.0, low=0.1, high=1.5, ge=0, description="server step size eta_g")
        divisor: Literal["effective", "steps", "mean"] = Field(
            "effective",
            description="option II divides by: momentum-aware steps, plain steps, steps of a mean-sized client",
        )
        control_lr: Literal["current", "initial"] = Field(
            "current", description="learning rate in option II: of the round, or undecayed"
        )
        variate_weights: Literal["plain", "samples"] = Field(
            "plain", description="c is the plain mean of the c_k (|S|/N of the round's changes), or weighted by samples"
        )
        relative_size: bool = Field(False, description="scale the variates by relative client sizes omega_k")

    settings: Settings

    client = ("c_k",)
    down = ("w", "c")
    up = ("W", "c_k")
    models = ("cloud", "participants")

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        by_size = settings.relative_size or settings.variate_weights == "samples"
        self.server = (ServerVector("c", mean_of="c_k", by_size=by_size),)

    def local(self, r: Round) -> Local:
        """g - c_k + c / omega_k."""
        return Local(linear=r.server.c / self._omega(r) - r.client.c_k)

    def finish(self, r: Round) -> Tensor:
        """New control variates (old c for all participants), then x+ = x + eta_g sum p_k (y_k - x)."""
        c, c_k = r.server.c, r.client.c_k
        change = self._variates(r) - c_k
        r.client.c_k = c_k + change
        r.server.c = c + r.total(self._shares(r) * change)
        return r.average(self.settings.server_lr)

    def _variates(self, r: Round) -> Tensor:
        s = self.settings
        if s.option == "I":
            gradient = r.services.full_gradient(r.w)
            return gradient + r.local.weight_decay * r.w if r.local.weight_decay else gradient
        lr = r.lr0 if s.control_lr == "initial" else r.lr
        mean = torch.full_like(r.steps, r.mean_steps)
        a = {"effective": r.effective_steps, "steps": r.steps, "mean": mean}[s.divisor]
        return r.client.c_k - r.server.c + (r.w - r.W) / (a * lr)

    def _shares(self, r: Round) -> Tensor:
        """What each change of c_k adds to c: 1/N, or D_k / D over the clients present."""
        if self.settings.variate_weights == "samples":
            return r.omega / r.population
        return self._omega(r) / r.population

    def _omega(self, r: Round) -> Tensor:
        return r.omega if self.settings.relative_size else r.omega.new_ones(r.omega.shape)
