"""Flash."""

import torch
from pydantic import Field
from torch import Tensor

from fedtide.methods.algorithms.base import Algorithm, AlgorithmSettings, Round, ServerVector, Tunable


class Flash(Algorithm):
    """A server optimizer whose steps grow where updates change more than they used to (Panchal et al. 2023).

    With D the mean update of the clients, all entrywise::

        m+ = b1 m + (1 - b1) D                                                                                      (1)
        v+ = b2 v + (1 - b2) D^2                                                                                    (2)
        b3 = |v| / (|D^2 - v+| + |v|)                  0 where both are 0                                           (3)
        d+ = b3 d + (1 - b3) (D^2 - v+)                                                                             (4)
        w+ = w + lr m+ / (sqrt(v+) - d+ + tau)                                                                      (5)

    with v = tau^2 at the start unless set, m = d = 0. Without the drift term d it is FedAdam (``fedopt``). With a small v at
    the start the denominator is negative where ``|D| > sqrt(1 - b2) / b2``, and the entry moves against m: keep local work
    small, or set ``floor``.

    With ``early_stop`` gamma, a client ends its local work after epoch e, 2 or later, and sends what it has if its mean loss L
    over its training samples has not fallen enough::

        L_{e-1} - L_e < gamma / e                                                                                   (6)
    """

    class Settings(AlgorithmSettings):
        name: str = "flash"
        server_lr: float = Tunable(0.01, low=1e-3, high=1.0, log=True, gt=0, description="server learning rate")
        beta1: float = Field(0.9, ge=0, lt=1, description="momentum")
        beta2: float = Field(0.99, ge=0, lt=1, description="memory of the second moment")
        tau: float = Tunable(1e-3, low=1e-4, high=1e-1, log=True, gt=0, description="adaptivity floor")
        v0: float | None = Field(None, ge=0, description="start of the second moment; null: tau^2")
        drift_term: bool = Field(True, description="false: d stays 0, as in FedAdam")
        floor: bool = Field(False, description="keep the denominator at tau or above")
        early_stop: float | None = Field(
            None, gt=0, description="gamma, least loss decrease for a client to continue; null: all continue"
        )

    settings: Settings

    admits = ("sums", "rules")

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        v0 = settings.tau**2 if settings.v0 is None else settings.v0
        self.server = ("m", ServerVector("v", start=v0), "d")
        if settings.early_stop is not None:
            self.early_stop = self._stops

    @property
    def needs_classes(self) -> bool:
        """Only to stop early, by cross-entropy."""
        return self.settings.early_stop is not None

    def _stops(self, epoch: int, before: float, now: float) -> bool:
        return before - now < (self.settings.early_stop or 0.0) / epoch  # (6)

    def extra(self) -> dict[str, Tensor]:
        return {"flash": torch.zeros(3, dtype=torch.float64)}

    def finish(self, r: Round) -> Tensor:
        s, m, v, d = self.settings, r.server.m, r.server.v, r.server.d
        D = r.average() - r.w
        square, before = D.square(), v.clone()
        m.mul_(s.beta1).add_(D, alpha=1 - s.beta1)  # (1)
        v.mul_(s.beta2).add_(square, alpha=1 - s.beta2)  # (2)
        change = square - v
        beta3 = before.abs() / (change.abs() + before.abs())  # (3)
        beta3 = torch.where(beta3.isnan(), 0, beta3)
        if s.drift_term:
            d.copy_(beta3 * d + (1 - beta3) * change)  # (4)
        denominator = v.sqrt() - d + s.tau
        if s.floor:
            denominator = denominator.clamp(min=s.tau)
        facts = [beta3.mean(), denominator.min(), (denominator < 0).sum()]
        r.extra["flash"] = torch.tensor([float(fact) for fact in facts], dtype=torch.float64)
        return r.w + s.server_lr * m / denominator  # (5)

    def record(self, r: Round) -> dict[str, Tensor | float]:
        """Mean of b3, smallest denominator, and number of negative ones."""
        return dict(zip(("beta3_mean", "denominator_min", "negative"), r.extra["flash"].tolist(), strict=True))
