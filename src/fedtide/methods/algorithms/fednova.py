"""FedNova."""

import torch
from pydantic import Field
from torch import Tensor

from fedtide.methods.algorithms._preview import explicit_step
from fedtide.methods.algorithms.base import (
    Algorithm,
    AlgorithmSettings,
    Extra,
    Layout,
    Local,
    Round,
    RunPreview,
    Tunable,
)


class FedNova(Algorithm):
    """Normalized averaging for unequal numbers of local steps (Wang et al. 2020).

    ``|a_k|`` is the displacement of client k's tau_k steps per unit of learning rate under a constant unit gradient::

        w+ = w - tau_eff sum_k p_k (w - theta_k) / |a_k|,   tau_eff = sum_k p_k |a_k|                               (eq. 3)

    With a proximal term ``tau_eff = sum_k p_k tau_k``, as in the released code. Server momentum is the released code's
    ``gmf``: ``b+ = gmf b + (w - w+) / eta``, and ``w - eta b+`` is sent.

    For local momentum *and* a proximal term together the released code applies two separate rules; here ``|a_k|`` is the exact
    displacement of the combined recursion, Nesterov's lookahead included, but neither clipping nor weight decay. It assumes
    momentum that starts at zero every round, whatever ``local.momentum_scope``.

    References:
        Wang et al. 2020. Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization.
    """

    class Settings(AlgorithmSettings):
        name: str = "fednova"
        mu: float = Field(0.0, ge=0, description="strength of the local proximal term (mu/2) |theta - w|^2")
        gmf: float = Tunable(0.0, low=0.0, high=0.95, ge=0, lt=1, description="server momentum")

    settings: Settings

    server = ("b",)
    up = ("W", "a", "tau")
    admits = ("sums", "rules")
    optimizer = "sgd"
    models = ("global", "participants")

    def local(self, r: Round) -> Local:
        mu = self.settings.mu
        return Local(pull=mu, toward=r.w) if mu else Local()

    def finish(self, r: Round) -> Tensor:
        a, gmf = self.norm(r), self.settings.gmf
        tau_eff = (r.weights * (r.steps if self.settings.mu else a)).sum()
        step = r.mean((r.w - r.W) * (tau_eff / a))  # eq. 3
        if not gmf:
            return r.w - step
        r.server.b = gmf * r.server.b + step / r.lr
        return r.w - r.lr * r.server.b

    def norm(self, r: Round) -> Tensor:
        """|a_k| [C, 1]: x_{s+1} = x_s + m_{s+1}, m_{s+1} = rho m_s + 1 - eta mu x_s, from rest, tau_k times."""
        rho, shrink = r.local.momentum, r.lr * self.settings.mu
        x, m = torch.zeros_like(r.steps), torch.zeros_like(r.steps)
        for step in range(int(r.steps.max())):
            gradient = 1 - shrink * x
            m = rho * m + gradient
            x = torch.where(step < r.steps, x + (gradient + rho * m if r.local.nesterov else m), x)
        return x

    def width(self, name: str, layout: Layout, extra: Extra) -> int:
        return 1 if name in ("a", "tau") else super().width(name, layout, extra)

    def advice(self, run: RunPreview) -> list[str]:
        return explicit_step(run, "mu", self.settings.mu)
