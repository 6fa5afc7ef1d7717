"""pFedMe."""

from typing import Literal

from pydantic import Field
from torch import Tensor

from fedtide.methods.algorithms._preview import explicit_step
from fedtide.methods.algorithms._whole_models import WholeModels
from fedtide.methods.algorithms.base import AlgorithmSettings, Gradient, Round, RunPreview, Tunable


class PFedMe(WholeModels):
    """Personalized federated learning with Moreau envelopes (Dinh et al. 2020, arXiv:2006.08848).

    Participants start with ``theta = y = w``, and on every batch B::

        theta <- theta - eta_p (g_B(theta) + lambda (theta - y) + mu theta)              K times                    (1)
        y <- local step along lambda (y - theta)                                                                    (2)

        w+ = (1 - beta) w + beta sum_k p_k y_k                                                                      (3)

    theta goes on from batch to batch and is the client's personal model. Inner steps are not clipped, and decayed by mu alone.

    In the authors' code ``local_epochs`` counts batches, ``mu`` is 0.001, all clients train in every round, drawn or not, and
    the personal model that it evaluates is y (``serve: local``). y moves a share eta lambda of a small distance per batch, so w
    lags behind FedAvg's at equal batches.

    References:
        Dinh et al. 2020. Personalized Federated Learning with Moreau Envelopes.
    """

    class Settings(AlgorithmSettings):
        name: str = "pfedme"
        lambda_: float = Tunable(15.0, low=1.0, high=50.0, ge=0, description="strength lambda of the envelope")
        personal_lr: float = Tunable(
            0.1, low=0.01, high=0.1, gt=0, description="learning rate eta_p of theta, with the schedule"
        )
        steps: int = Tunable(5, low=1, high=10, ge=1, description="steps K of theta on every batch")
        server_lr: float = Tunable(1.0, low=0.5, high=2.0, ge=0, description="server step size beta")
        mu: float = Field(0.0, ge=0, description="decay of theta in the inner steps (released code: 0.001)")
        serve: Literal["theta", "local"] = Field(
            "theta", description="the personal model: theta, or the client's last y"
        )

    settings: Settings

    admits = ("rules",)
    optimizer = "sgd"

    client = ("theta",)

    def start(self, r: Round) -> Tensor:
        r.client.theta = r.w.expand_as(r.client.theta)
        return r.w

    def gradients_in(self, step: int) -> int:
        return self.settings.steps

    def direction(self, grad: Gradient, W: Tensor, r: Round) -> Tensor:
        """lambda (y - theta), with theta advanced."""
        s, theta = self.settings, r.client.theta
        rate = r.scheduled(s.personal_lr)
        for _ in range(s.steps):
            v = grad(theta).add_(theta - W, alpha=s.lambda_).add_(theta, alpha=s.mu)
            theta.sub_(v, alpha=rate)  # (1)
        return s.lambda_ * (W - theta)  # (2)

    def finish(self, r: Round) -> Tensor:
        if self.settings.serve == "local":
            r.client.theta = r.trained.W
        return r.average(self.settings.server_lr)  # (3)

    def advice(self, run: RunPreview) -> list[str]:
        s = self.settings
        pull = s.personal_lr * s.lambda_
        inner = [f"algorithm.personal_lr * lambda_ = {pull:g} is not below 2: the steps of theta diverge"] * (pull >= 2)
        return inner + explicit_step(run, "lambda_", s.lambda_, "step of y")
