"""Gradient descent on a linear head and on the features it is trained with, as traced programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from fedtide.training.programs.traces import Traced

_TOGETHER = 32
"""Steps of a head that are traced as one program."""

Loss = Callable[..., Tensor]
"""A number, of the point and constants; a function at the top of a module."""


def minimized(loss: Loss, point: Tensor, *constants: Tensor, steps: int, rate: float) -> Tensor:
    """The point after some steps of gradient descent on ``loss(point, *constants)``."""
    step = Traced(partial(_step, loss, rate))
    for _ in range(steps):
        point = step(point, *constants)
    return point


def slope(loss: Loss, point: Tensor, *constants: Tensor) -> Tensor:
    """Gradient of ``loss(point, *constants)`` by the point."""
    point = point.detach().requires_grad_()
    with torch.enable_grad():
        return torch.autograd.grad(loss(point, *constants), point)[0]


def trained_head(F: Tensor, passes: Iterable[Tensor], batch: int, rate: float) -> tuple[Tensor, Tensor]:
    """Weight [L, q] and bias [L] after SGD from zero on the cross-entropy over features.

    Args:
        F: [L, m, q], m features of each class. passes: for each pass over them their order, a permutation of L m.
        batch: features per step. rate: learning rate.
    """
    classes, per_class, _ = F.shape
    x = functional.pad(F.flatten(0, 1), (0, 1), value=1.0)
    y = torch.eye(classes, dtype=F.dtype, device=F.device).repeat_interleave(per_class, 1)
    theta = torch.zeros(classes, x.shape[1], dtype=F.dtype, device=F.device)
    descend = Traced(partial(_descend, batch=batch, rate=rate))
    for order in passes:
        for some in torch.split(order.to(F.device), _TOGETHER * batch):
            theta = descend(theta, x.index_select(0, some), y.index_select(1, some))
    return theta[:, :-1], theta[:, -1]


def _step(loss: Loss, rate: float, point: Tensor, *constants: Tensor) -> Tensor:
    return point - slope(loss, point, *constants).mul_(rate)


def _descend(theta: Tensor, x: Tensor, y: Tensor, batch: int, rate: float) -> Tensor:
    """A head [L, q + 1] after a step for each batch of features x [n, q + 1] with one-hot labels y [L, n]."""
    theta = theta.clone()
    for some, own in zip(torch.split(x, batch), torch.split(y, batch, 1), strict=True):
        wrong = torch.softmax(theta @ some.T, 0).sub_(own)
        theta.addmm_(wrong, some, alpha=-rate / len(some))
    return theta
