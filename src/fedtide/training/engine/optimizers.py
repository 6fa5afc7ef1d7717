"""Local optimizers: how a direction moves the parameters of some clients, in place on flat vectors.

The formulas are those of ``torch.optim``. The state of an optimizer is matrices [C, d], zero at the start, and a column [C, 1]:
each row counts its own steps.
"""

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from fedtide.settings.groups import local as chosen
from fedtide.settings.groups.local import LocalSettings

Coefficient = float | Tensor  # a number, or a column with one per client [C, 1]
Moments = dict[str, Tensor]  # what an optimizer remembers, rows by name


def add(total: Tensor, factor: Coefficient, values: Tensor) -> None:
    """``total += factor * values`` in place."""
    if isinstance(factor, Tensor):
        total.addcmul_(factor.expand_as(values), values)
    else:
        total.add_(values, alpha=factor)


class Optimizer(ABC):
    """A local optimizer.

    Attributes:
        vectors: names of its vectors [d] of a client. counts: whether it counts steps as well.
        decay: weight decay that shrinks the parameters directly; 0 where it is part of the direction.
    """

    vectors: tuple[str, ...] = ()
    counts = True
    decay = 0.0

    @abstractmethod
    def step(self, w: Tensor, v: Tensor, moments: Moments, lr: Coefficient) -> None:
        """Move parameters ``w`` [c, d] along a direction; ``w`` and ``moments`` are updated in place, ``v`` is overwritten."""

    def widths(self, size: int) -> dict[str, int]:
        """Numbers per client of its state, for a model of ``size`` parameters."""
        return dict.fromkeys(self.vectors, size) | ({"optimizer.step": 1} if self.counts else {})

    def at_rest(self, W: Tensor) -> Moments:
        """Its state before the first step of the clients whose parameters are ``W`` [C, d]."""
        return {name: W.new_zeros(len(W), width) for name, width in self.widths(W.shape[1]).items()}


class Sgd(Optimizer):
    """``m = momentum m + v;  w = w - lr m``, or with Nesterov ``w = w - lr (v + momentum m)``."""

    counts = False

    def __init__(self, momentum: float, nesterov: bool) -> None:
        self.momentum, self.nesterov = momentum, nesterov
        self.vectors = ("momentum",) if momentum else ()

    def step(self, w: Tensor, v: Tensor, moments: Moments, lr: Coefficient) -> None:
        if self.momentum:
            m = moments["momentum"]
            m.mul_(self.momentum).add_(v)
            if self.nesterov:
                v.add_(m, alpha=self.momentum)
            else:
                v = m
        add(w, -lr, v)


class Adam(Optimizer):
    """Adam, AMSGrad, and with ``decay`` AdamW.

    Step k of a client is::

        w = (1 - lr decay) w
        m = beta1 m + (1 - beta1) v;   s = beta2 s + (1 - beta2) v^2
        w = w - lr / (1 - beta1^k) m / (sqrt(s / (1 - beta2^k)) + eps)

    AMSGrad divides by the largest s so far.
    """

    def __init__(self, settings: chosen.Adam, decay: float) -> None:
        self.settings, self.decay = settings, decay
        largest = ("optimizer.max_exp_avg_sq",) if settings.amsgrad else ()
        self.vectors = ("optimizer.exp_avg", "optimizer.exp_avg_sq", *largest)

    def step(self, w: Tensor, v: Tensor, moments: Moments, lr: Coefficient) -> None:
        beta1, beta2, k = self.settings.beta1, self.settings.beta2, moments["optimizer.step"].add_(1)
        m, s, *largest = (moments[name] for name in self.vectors)
        if self.decay:
            w.mul_(1 - lr * self.decay)
        m.lerp_(v, 1 - beta1)
        s.mul_(beta2).addcmul_(v, v, value=1 - beta2)
        for most in largest:
            s = torch.maximum(most, s, out=most)
        torch.sqrt(s, out=v).mul_(_remaining(beta2, k).rsqrt_()).add_(self.settings.eps)
        w.sub_(torch.div(m, v, out=v).mul_(lr / _remaining(beta1, k)))


class Adagrad(Optimizer):
    """``s = s + v^2;  w = w - lr / (1 + (k - 1) lr_decay) v / (sqrt(initial + s) + eps)`` in step k of a client."""

    vectors = ("optimizer.sum",)

    def __init__(self, settings: chosen.Adagrad) -> None:
        self.settings = settings

    def step(self, w: Tensor, v: Tensor, moments: Moments, lr: Coefficient) -> None:
        k, s = moments["optimizer.step"].add_(1), moments["optimizer.sum"]
        s.addcmul_(v, v)
        root = (s + self.settings.initial).sqrt_().add_(self.settings.eps)
        w.sub_(v.div_(root).mul_(lr / (1 + (k - 1) * self.settings.lr_decay)))


def _remaining(beta: float, k: Tensor) -> Tensor:
    """``1 - beta^k`` [c, 1], exact in single precision too, where beta^k is close to one."""
    return torch.expm1(k * (math.log(beta) if beta else -math.inf)).neg_()


def optimizer(local: LocalSettings) -> Optimizer:
    """The optimizer of some settings."""
    settings = local.optimizer
    if isinstance(settings, chosen.Adagrad):
        return Adagrad(settings)
    if isinstance(settings, chosen.Adam):
        return Adam(settings, local.weight_decay - local.gradient_decay)
    return Sgd(local.momentum, local.nesterov)
