"""Adaptive-FedAvg."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fedtide.methods.algorithms._averaging import Averaging, AveragingSettings
from fedtide.methods.algorithms.base import Local, Round, Tunable


class AdaptiveFedAvg(Averaging):
    """FedAvg whose local learning rate follows the variance of the global model (Canonaco et al. 2021).

    With hats for a value over ``1 - beta^tau``, tau the number of updates and ``w`` the new global model::

        s+ = b2 s + (1 - b2) mean((w - mu^)^2)         mean over the entries                                        (1)
        mu+ = b1 mu + (1 - b1) w                                                                                    (2)
        q = s^+ / s^                                   1 in the first update, and where s^ is 0                     (3)
        g+ = b3 g + (1 - b3) q                                                                                      (4)
        factor of the next round's rate = min(1, g^+)              or min(1, g^+ / tau) with ``anneal: time``       (5)

    The factor multiplies the run's schedule and never exceeds 1, so choose a larger learning rate than FedAvg's. Released
    programs divide by tau, so that the rate falls like 1/t without drift; the default does not. Small cohorts are noisy, which
    looks like drift.
    """

    class Settings(AveragingSettings):
        name: str = "adaptive_fedavg"
        beta1: float = Tunable(0.5, low=0.1, high=0.9, ge=0, lt=1, description="decay of the model mean")
        beta2: float = Tunable(0.5, low=0.1, high=0.9, ge=0, lt=1, description="decay of the variance")
        beta3: float = Tunable(0.5, low=0.1, high=0.9, ge=0, lt=1, description="decay of the variance ratio")
        anneal: Literal["none", "time"] = Field("none", description="time: divide the ratio by the number of updates")
        every: int = Field(1, ge=1, description="rounds between updates of the factor")

    settings: Settings

    admits = ("rules",)

    server = ("mu",)

    def extra(self) -> dict[str, Tensor]:
        """s, g, tau, the factor and q, float64."""
        return {"adaptive": torch.tensor([0.0, 0.0, 0.0, 1.0, 1.0], dtype=torch.float64)}

    def local(self, r: Round) -> Local:
        factor = float(r.extra["adaptive"][3])
        return Local() if factor == 1 else Local(lr_scale=factor)

    def finish(self, r: Round) -> Tensor:
        w = super().finish(r)
        if (r.t + 1) % self.settings.every == 0:
            self._update(r, w)
        return w

    def _update(self, r: Round, w: Tensor) -> None:
        c, mu = self.settings, r.server.mu
        s, g, tau, *_ = r.extra["adaptive"].tolist()
        before = s / (1 - c.beta2**tau) if tau else 0.0
        known = mu / (1 - c.beta1**tau) if tau else mu
        s = c.beta2 * s + (1 - c.beta2) * float((w - known).square().mean())  # (1)
        mu.mul_(c.beta1).add_(w, alpha=1 - c.beta1)  # (2)
        tau += 1
        q = s / (1 - c.beta2**tau) / before if before else 1.0  # (3)
        g = c.beta3 * g + (1 - c.beta3) * q  # (4)
        ratio = g / (1 - c.beta3**tau)
        factor = min(1.0, ratio / tau if c.anneal == "time" else ratio)  # (5)
        r.extra["adaptive"] = torch.tensor([s, g, tau, factor, q], dtype=torch.float64)

    def record(self, r: Round) -> dict[str, Tensor | float]:
        """The factor of the next round, and the latest ratio of variances."""
        *_, factor, q = r.extra["adaptive"].tolist()
        return {"rate_factor": factor, "variance_ratio": q}
