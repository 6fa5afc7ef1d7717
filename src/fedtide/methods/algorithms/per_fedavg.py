"""Per-FedAvg."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fedtide.methods.algorithms._averaging import Averaging, AveragingSettings
from fedtide.methods.algorithms.base import Gradient, GradientAt, NoStep, Round, RunPreview, Tunable


class PerFedAvg(Averaging):
    """Personalized federated averaging (Fallah et al. 2020): a model that a few steps fit to a client, by MAML.

    With two batches B and B' of a participant, the inner rate alpha and y's local step::

        u = g_B'(y - alpha g_B(y))                                                                                  (1)
        v = u                                                                                      ``variant: fo``      (2)
        v = u - alpha (g_B'(y + delta u) - g_B'(y - delta u)) / (2 delta)                           ``variant: hf``      (3)

    ``batches: alternate`` takes two consecutive batches of the round for a step, and leaves a last single one out (its inner
    gradient counts, since it is taken); ``same`` takes every batch twice. The Hessian in (3) is that of B', in the paper of a
    third batch. The model that clients are served is w after inner steps on their own training samples:
    ``evaluation.finetune_steps`` of them, here with the rate alpha.

    Only the abstract was available: formulas are those of pFedMe's authors, whose program adapts on *labeled test* batches
    before it evaluates, which is not reproduced. Momentum is that of the outer steps.

    References:
        Fallah et al. 2020. Personalized Federated Learning with Theoretical Guarantees: A Model-Agnostic Meta-Learning
            Approach.
    """

    class Settings(AveragingSettings):
        name: str = "per_fedavg"
        inner_lr: float = Tunable(
            0.01,
            low=0.003,
            high=0.3,
            log=True,
            ge=0,
            description="learning rate alpha of inner steps, without schedule",
        )
        variant: Literal["fo", "hf"] = Field("fo", description="first order, or with the Hessian by differences")
        delta: float = Field(0.001, gt=0, description="step delta of the differences, in multiples of the gradient")
        batches: Literal["alternate", "same"] = Field("alternate", description="batches of an inner and an outer step")

    settings: Settings

    admits = ("sums", "rules", "downlink")

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.personal_lr = settings.inner_lr
        self._outer = 1 if settings.variant == "fo" else 3

    def gradients_in(self, step: int) -> int:
        """One at the inner point and those of the step; of a pair, the first batch has the former and the second the latter."""
        if self.settings.batches == "same":
            return 1 + self._outer
        return self._outer if step % 2 else 1

    def start(self, r: Round) -> Tensor:
        if self.settings.batches == "alternate":  # inner points wait for the second batch of a pair
            r.carry(inner=torch.zeros_like(r.W), batches=torch.zeros_like(r.n))
        return r.base

    def direction(self, grad: Gradient, W: Tensor, r: Round) -> Tensor | GradientAt | NoStep:
        """v, on every batch or on every second one."""
        s = self.settings
        if s.batches == "same":
            inner = W - s.inner_lr * grad(W)
        else:
            seen = int(r.client.batches.max())  # those who have no more do not count
            r.client.batches = r.client.batches + 1
            if seen % 2 == 0:
                r.client.inner = W - s.inner_lr * grad(W)
                return NoStep()
            inner = r.client.inner
        if s.variant == "fo":
            return GradientAt(inner)  # (1), (2)
        u = grad(inner)
        ahead, behind = grad(W + s.delta * u), grad(W - s.delta * u)
        return u - s.inner_lr * (ahead - behind) / (2 * s.delta)  # (3)

    def advice(self, run: RunPreview) -> list[str]:
        return [
            "algorithm per_fedavg: clients are served the model after inner steps, so set evaluation.finetune_steps (and "
            "evaluation.clients_every)"
        ] * (run.personalize == 0)
