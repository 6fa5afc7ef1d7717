"""FedOpt: an optimizer on the server."""

from typing import Literal

from pydantic import Field
from torch import Tensor

from fedtide.methods.algorithms.base import Algorithm, AlgorithmSettings, Round, ServerVector, Tunable


class FedOpt(Algorithm):
    """Server optimizers on the pseudo-gradient -D, D = mean(theta_k) - w (Reddi et al. 2021; Hsu et al. 2019).

    ========= ==========================================================================
    sgd       m+ = beta1 m + D,   w+ = w + lr m+   (FedAvgM)
    adagrad   v+ = v + D^2
    adam      v+ = beta2 v + (1 - beta2) D^2
    yogi      v+ = v - (1 - beta2) D^2 sign(v - D^2)
    ========= ==========================================================================

    The adaptive three share, with v_0 = tau^2 unless set and no bias correction, which ``torch.optim`` does not have::

        m+ = beta1 m + (1 - beta1) D                                                                                (1)
        w+ = w + lr m+ / (sqrt(v+) + tau)                                                                           (2)

    BatchNorm statistics are averaged, never optimized.

    References:
        Hsu et al. 2019. Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification.
        Reddi et al. 2021. Adaptive Federated Optimization.
    """

    class Settings(AlgorithmSettings):
        name: str = "fedopt"
        optimizer: Literal["sgd", "adagrad", "adam", "yogi"] = Field("adam", description="server optimizer")
        server_lr: float = Tunable(0.1, low=1e-3, high=1.0, log=True, gt=0, description="server learning rate")
        beta1: float = Tunable(0.9, low=0.0, high=0.99, ge=0, lt=1, description="momentum")
        beta2: float = Field(0.99, ge=0, lt=1, description="memory of the second moment (adam, yogi)")
        tau: float = Tunable(1e-3, low=1e-5, high=1e-1, log=True, gt=0, description="adaptivity floor")
        v0: float | None = Field(None, ge=0, description="start of the second moment; default tau^2")

    settings: Settings

    models = ("global", "participants")
    admits = ("sums", "rules", "noise", "exchanges")

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        v0 = settings.tau**2 if settings.v0 is None else settings.v0
        self.server = ("m", ServerVector("v", start=v0))

    def finish(self, r: Round) -> Tensor:
        s, m, v = self.settings, r.server.m, r.server.v
        D = r.average() - r.w
        if s.optimizer == "sgd":
            return r.w.add(m.mul_(s.beta1).add_(D), alpha=s.server_lr)
        m.mul_(s.beta1).add_(D, alpha=1 - s.beta1)  # (1)
        square = D.square()
        if s.optimizer == "adagrad":
            v.add_(square)
        elif s.optimizer == "adam":
            v.mul_(s.beta2).add_(square, alpha=1 - s.beta2)
        else:
            v.sub_((1 - s.beta2) * square * (v - square).sign())
        step: Tensor = s.server_lr * m / (v.sqrt() + s.tau)  # (2)
        return r.w + step
