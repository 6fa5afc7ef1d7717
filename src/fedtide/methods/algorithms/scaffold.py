"""SCAFFOLD."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fedtide.methods.algorithms.base import Algorithm, AlgorithmSettings, Local, Round, ServerVector, Tunable


class Scaffold(Algorithm):
    """Control variates against client drift (Karimireddy et al. 2020), options I and II of Algorithm 1.

    With g_k the gradient over all samples of a client, and a_k its number of local steps::

        y - eta (g(y) - c_k + c)                                                                        (eq. 3, line 10)
        c_k+ = g_k(x)  (I)   or   c_k - c + (x - y_k) / (a_k eta)  (II)                                 (eq. 4, line 12)
        x+ = x + eta_g sum_S p_k (y_k - x),   c+ = c + 1/N sum_S (c_k+ - c_k)                           (eq. 5, line 17)

    Option II needs ``local.optimizer: sgd``; option I takes any, which gets the corrected gradient. ``variant``:

    * ``momentum_aware``: ``a_k`` is the displacement per unit gradient, which is the number of steps K unless there is local
      momentum (for momentum that starts at zero every round whatever ``local.momentum_scope``).
    * ``printed``: ``a_k`` is the number of steps. With momentum the control variates come out too large by up to
      1 / (1 - momentum), as in DynamicFL's released code.
    * ``fedssg``: the SCAFFOLD of the FedSSG family's released code. ``a_k`` is the number of steps of a client of mean size and
      eta undecayed; in the local correction c is divided by the relative size omega_k, and the changes of c_k are multiplied
      by it.

    References:
        Karimireddy et al. 2020. SCAFFOLD: Stochastic Controlled Averaging for Federated Learning.
    """

    class Settings(AlgorithmSettings):
        name: str = "scaffold"
        variant: Literal["momentum_aware", "printed", "fedssg"] = Field(
            "momentum_aware",
            description="option II divides by momentum-aware steps, plain steps, or as in FedSSG's released code",
        )
        option: Literal["I", "II"] = Field(
            "II", description="I: gradient over all local data at x; II: from the local steps"
        )
        server_lr: float = Tunable(1.0, low=0.1, high=1.5, ge=0, description="server step size eta_g")
        variate_weights: Literal["plain", "samples"] = Field(
            "plain", description="c is the plain mean of the c_k (|S|/N of the round's changes), or weighted by samples"
        )

    settings: Settings

    client = ("c_k",)
    down = ("w", "c")
    up = ("W", "c_k")
    models = ("global", "participants")

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.optimizer = "sgd" if settings.option == "II" else "any"
        self.apart = ("c_k",) if settings.option == "I" else ()
        self.fedssg = settings.variant == "fedssg"
        self.by_size = self.fedssg or settings.variate_weights == "samples"
        self.server = (ServerVector("c", mean_of="c_k", by_size=self.by_size),)

    def local(self, r: Round) -> Local:
        c = r.server.c / r.omega if self.fedssg else r.server.c
        return Local(linear=c - r.client.c_k)  # eq. 3, line 10

    def finish(self, r: Round) -> Tensor:
        """New control variates (with the old c for all participants), then the model."""
        share = (r.omega if self.by_size else torch.ones_like(r.omega)) / r.population
        r.move("c_k", self.c_plus(r) - r.client.c_k, share)  # line 14; eq. 5, line 17
        return r.average(self.settings.server_lr)  # eq. 5, line 17

    def c_plus(self, r: Round) -> Tensor:
        """c_k+ [C, d]: eq. 4, line 12."""
        if self.settings.option == "I":
            gradient = r.services.full_gradient(r.w)
            return gradient + r.local.gradient_decay * r.w if r.local.gradient_decay else gradient
        return r.client.c_k - r.server.c + (r.w - r.W) / self.a_eta(r)

    def a_eta(self, r: Round) -> Tensor:
        """What turns a displacement into a gradient [C, 1]."""
        if self.fedssg:
            return torch.full_like(r.steps, r.mean_steps) * r.local.lr
        return (r.effective_steps if self.settings.variant == "momentum_aware" else r.steps) * r.lr
