"""FedGraB."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from fedtide.core.randomness import hashed_uniform
from fedtide.methods.algorithms._averaging import Averaging, AveragingSettings
from fedtide.methods.algorithms.base import ForwardPass, Round, Term, TermBatch

_LIMIT = 100.0


class FedGrab(Averaging):
    """Self-adjusting gradient balancer for long-tailed data (Xiao et al. 2023), averaged as in FedAvg.

    Class c has a controller ``u_c`` on each client, which balances the gradients at logit ``z_c``. One round:

    (1) The client adds up the magnitudes of the weighted gradients: ``S+_c`` on samples of class c, ``S-_c`` on all others.
    (2) The imbalance is ``e_c = S-_c - S+_c``.
    (3) PID control, with ``e1_c`` and ``e2_c`` the previous two ``e_c``:
        ``u_c += Kp (e_c - e1_c) + Ki e_c + Kd (e_c - 2 e1_c + e2_c)``, clipped to ``|u_c| <= 100``.
    (4) Only open classes use their controller: tail classes by the estimated prior (paper) or all (released code).
    (5) Random bypass in every local step: of the L' open classes in order, each is bypassed with probability
        ``0.1^(n / (L' - 1))``, with n the number bypassed before it, so the first one always is.
    (6) Sample i gets the weight ``W_ic = f(u_c)`` if c is its class, else ``f(-u_c)``, with
        ``f(x) = (10/9) / (1/9 + exp(-x/2))``; classes that are bypassed or not open get ``f(0) = 1``.
    (7) Local training minimizes ``sum_c W_ic BCE(z_ic, [y_i = c])`` in place of the objective; ``W_ic`` is a constant.
    (8) The server averages the models as in FedAvg (inherited).

    Controllers are updated once per round from the mean gradient over the client's data under the global model, without
    bypass and for every class, open or not, instead of once per local step from that of a batch. The released code never
    trains the last layer and does not enforce the limit on u; both are done here. ``prior: weight_norm`` takes class
    frequencies proportional to the norms of the rows of the last layer. Reported training losses are the weighted ones.
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
        extra["balancer"][departed.to(extra["balancer"].device)] = 0.0

    def start(self, r: Round) -> Tensor:
        """Update the participants' controllers, (1) to (3); all train from w."""
        r.extra["balancer"] = kept = r.extra["balancer"].cpu()  # a resumed run has it on the training device
        before = Controllers(*kept[r.ids].unbind(1))
        amounts = [_amounts(seen, f(u), f(-u)) for seen, u in zip(r.services.forward(r.w), before.u, strict=True)]
        kept[r.ids] = torch.stack(before.moved(torch.stack(amounts), self.settings), 1)  # (2), (3)
        return r.w

    def terms(self, r: Round) -> list[Term]:
        """The loss (7) with the controllers' u; NaN for classes that are not open."""
        u = torch.where(self._open(r), Controllers(*r.extra["balancer"][r.ids].unbind(1)).u, torch.nan)  # (4)
        return [Term(self._loss, constants={"u": u.to(r.w)}, replaces=True)]

    def _open(self, r: Round) -> Tensor:
        """(4): open classes, bool [L]."""
        if self.settings.prior == "oracle":
            frequency = r.services.population_counts().sum(0)
        else:
            frequency = torch.linalg.vector_norm(r.problem.layout.named(r.w)["head.weight"], dim=1).to(
                "cpu", torch.float64
            )
        return (frequency < frequency.mean()) | torch.tensor(self.settings.open == "all")

    def _loss(self, batch: TermBatch) -> Tensor:
        """(7) of each sample [B]; the weights are constants, so they multiply the gradients."""
        z, u = batch.outputs.logits, batch.constants["u"]
        own = (batch.labels.unsqueeze(-1) == torch.arange(z.shape[-1], device=z.device)).to(z.dtype)
        active = ~u.isnan()
        if self.settings.bypass:
            active = active & ~_bypassed(batch.key, active)  # (5)
        u = torch.where(active, u, 0.0)  # (5): f(0) = 1
        weights = own * f(u) + (1 - own) * f(-u)  # (6)
        binary_cross_entropies = functional.softplus(z) - own * z
        return (weights * binary_cross_entropies).sum(-1)  # (7)


class Controllers(NamedTuple):
    """PID controllers of some clients, float64 [C, L] each: ``own`` S+, ``other`` S-, u, and the last two e."""

    own: Tensor
    other: Tensor
    u: Tensor
    e1: Tensor
    e2: Tensor

    def moved(self, amounts: Tensor, s: FedGrab.Settings) -> Controllers:
        """(1) to (3) for a round that adds ``amounts`` [C, 2, L] to S+ and S-."""
        own, other = self.own + amounts[:, 0], self.other + amounts[:, 1]  # (1)
        e = other - own  # (2)
        u = self.u + s.Kp * (e - self.e1) + s.Ki * e + s.Kd * (e - 2 * self.e1 + self.e2)  # (3)
        return Controllers(own, other, u.clamp(-_LIMIT, _LIMIT), e, self.e1)  # (3)


def f(x: Tensor) -> Tensor:
    """(6): weight of a gradient, one at zero, between 0 and 10."""
    return (10 / 9) / (1 / 9 + torch.exp(-x / 2))


def _amounts(seen: ForwardPass, positive: Tensor, negative: Tensor) -> Tensor:
    """(1): what a round adds to S+ and S-, the mean weighted |gradient| of each class, float64 [2, L] on the CPU."""
    p = torch.sigmoid(seen.logits).to("cpu", torch.float64)
    own = functional.one_hot(seen.labels.cpu(), p.shape[1]).to(p)
    return torch.stack([positive * (own * (1 - p)).mean(0), negative * ((1 - own) * p).mean(0)])  # (1)


def _bypassed(key: Tensor, active: Tensor) -> Tensor:
    """(5): classes bypassed in this step, bool [L]; a walk through the open ones in order."""
    draws, steps = hashed_uniform(key, len(active)), (active.sum() - 1).clamp(min=1)
    passed, found = torch.zeros_like(draws[0]), []
    for u, is_open in zip(draws.unbind(), active.unbind(), strict=True):
        hit = is_open & (u < 0.1 ** (passed / steps))  # (5)
        passed = passed + hit.to(passed)
        found.append(hit)
    return torch.stack(found)
