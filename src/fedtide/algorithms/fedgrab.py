"""FedGraB."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from fedtide.algorithms._averaging import Averaging, AveragingSettings
from fedtide.algorithms.base import ForwardPass, Round, Term, TermBatch
from fedtide.core.randomness import hashed_uniform

_LIMIT = 100.0


class FedGrab(Averaging):
    """Self-adjusting gradient balancer for long-tailed data (Xiao et al. 2023), averaged as in FedAvg.

    The loss, in place of the objective, is the sum over classes of binary cross-entropies, whose gradient at logit c is
    multiplied by ``f(u_c)`` on samples of c and by ``f(-u_c)`` on others::

        f(x) = (10/9) / (1/9 + exp(-x/2))                                                                           (1)

    A controller per client and class drives the imbalance e_c of the accumulated gradients to zero (S-: on samples of other
    classes, S+: on those of c; e1, e2: the last two e)::

        e = S- - S+,   u += Kp (e - e1) + Ki e + Kd (e - 2 e1 + e2),   |u| <= 100                                   (2)

    In every step classes are left out at random: the first of the L' open ones with certainty, and after i of them were left
    out the next with probability ``0.1^(i / (L' - 1))`` (3). Zero gains are FedAvg with this loss.

    A controller moves once per round, by the mean gradient over the client's data under the global model, instead of once
    per local step by that of a batch. The released code never trains the last layer and does not enforce the limit on u; here
    both happen. ``prior: weight_norm`` takes class frequencies proportional to the norms of the last layer's rows,
    ``oracle`` the true ones. Reported training losses are the weighted ones.
    """

    class Settings(AveragingSettings):
        name: str = "fedgrab"
        Kp: float = Field(10.0, ge=0, description="gain on the change of e")
        Ki: float = Field(0.01, ge=0, description="gain on e")
        Kd: float = Field(0.1, ge=0, description="gain on the change of the change of e")
        open: Literal["all", "tail"] = Field(
            "all", description="classes with a controller: all, or those rarer than the mean class"
        )
        prior: Literal["oracle", "weight_norm"] = Field(
            "oracle", description="class frequencies that decide which classes are open"
        )
        bypass: bool = Field(True, description="leave classes out at random")

    settings: Settings

    admits = ("rules", "downlink")
    needs_classes = True

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.needs = ("linear_head",) if settings.prior == "weight_norm" else ()

    def extra(self) -> dict[str, Tensor]:
        """Of every client and class: S+, S-, u, e1, e2."""
        return {"balancer": torch.zeros(self.problem.clients, 5, self.problem.classes, dtype=torch.float64)}

    def forget(self, extra: dict[str, Tensor], departed: Tensor) -> None:
        """Their controllers start again from zero."""
        extra["balancer"][departed.to(extra["balancer"].device)] = 0.0

    def start(self, r: Round) -> Tensor:
        """The participants' controllers move; all train from w."""
        r.extra["balancer"] = kept = r.extra["balancer"].cpu()  # a resumed run has it on the training device
        before = Controllers(*kept[r.ids].unbind(1))
        amounts = [_amounts(seen, f(u), f(-u)) for seen, u in zip(r.services.forward(r.w), before.u, strict=True)]
        kept[r.ids] = torch.stack(before.moved(torch.stack(amounts), self.settings), 1)
        return r.w

    def terms(self, r: Round) -> list[Term]:
        """The weighted loss with the controllers' u; NaN for classes that are not open."""
        u = torch.where(self._open(r), Controllers(*r.extra["balancer"][r.ids].unbind(1)).u, torch.nan)
        return [Term(self._loss, constants={"u": u.to(r.w)}, replaces=True)]

    def _open(self, r: Round) -> Tensor:
        """Classes with a controller, bool [L]."""
        if self.settings.prior == "oracle":
            frequency = r.services.population_counts().sum(0)
        else:
            frequency = torch.linalg.vector_norm(r.problem.layout.named(r.w)["head.weight"], dim=1).to(
                "cpu", torch.float64
            )
        return (frequency < frequency.mean()) | torch.tensor(self.settings.open == "all")

    def _loss(self, batch: TermBatch) -> Tensor:
        """[B]; the weights are constants, so they multiply the gradients."""
        z, u = batch.outputs.logits, batch.constants["u"]
        own = (batch.labels.unsqueeze(-1) == torch.arange(z.shape[-1], device=z.device)).to(z.dtype)
        active = ~u.isnan()
        if self.settings.bypass:
            active = active & ~_bypassed(batch.key, active)  # (3)
        u = torch.where(active, u, 0.0)  # f(0) = 1
        weights = own * f(u) + (1 - own) * f(-u)  # (1)
        binary_cross_entropies = functional.softplus(z) - own * z
        return (weights * binary_cross_entropies).sum(-1)


class Controllers(NamedTuple):
    """PID controllers of some clients and all classes, float64 [C, L] each.

    Attributes:
        own, other: S+ and S-. u: what the weights depend on. e1, e2: the last two e.
    """

    own: Tensor
    other: Tensor
    u: Tensor
    e1: Tensor
    e2: Tensor

    def moved(self, amounts: Tensor, s: FedGrab.Settings) -> Controllers:
        """After a round that adds ``amounts`` [C, 2, L] to S+ and S-: (2)."""
        own, other = self.own + amounts[:, 0], self.other + amounts[:, 1]
        e = other - own
        u = self.u + s.Kp * (e - self.e1) + s.Ki * e + s.Kd * (e - 2 * self.e1 + self.e2)
        return Controllers(own, other, u.clamp(-_LIMIT, _LIMIT), e, self.e1)


def f(x: Tensor) -> Tensor:
    """(1): weight of a gradient, one at zero, between 0 and 10."""
    return (10 / 9) / (1 / 9 + torch.exp(-x / 2))


def _amounts(seen: ForwardPass, positive: Tensor, negative: Tensor) -> Tensor:
    """What a round adds to S+ and S-: the mean weighted |gradient| of each class, float64 [2, L] on the CPU."""
    p = torch.sigmoid(seen.logits).to("cpu", torch.float64)
    own = functional.one_hot(seen.labels.cpu(), p.shape[1]).to(p)
    return torch.stack([positive * (own * (1 - p)).mean(0), negative * ((1 - own) * p).mean(0)])


def _bypassed(key: Tensor, active: Tensor) -> Tensor:
    """(3): classes left out in this step, bool [L]; a walk over the open ones in order."""
    draws, steps = hashed_uniform(key, len(active)), (active.sum() - 1).clamp(min=1)
    passed, found = torch.zeros_like(draws[0]), []
    for u, is_open in zip(draws.unbind(), active.unbind(), strict=True):
        hit = is_open & (u < 0.1 ** (passed / steps))
        passed = passed + hit.to(passed)
        found.append(hit)
    return torch.stack(found)
