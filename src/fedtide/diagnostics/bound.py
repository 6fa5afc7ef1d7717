"""The convergence bound of dynamic initialisation (Chang et al.), term by term.

For FedAvg with full participation, without momentum::

    (1/ST) sum |grad F(w_t)|^2 <= mean over rounds of (a) + (b) + (c) + (d)

    a = 2 (F(w_t) - F(w_t+1)) / (eta (1 - Lambda))
    b = 4 beta Theta^2 eta / (1 - Lambda) sum_k sigma_k^2 e_k (D_k - B_k) / (B_k D_k^2)
    c = 4 beta^2 eta^2 / (D (1 - Lambda)) sum_k (e_k - 1)(1 - B_k/D_k) Theta^q sigma_k^2 / B_k
    d = 8 beta^2 eta^2 e_max (e_max - 1) zeta_2 / (1 - Lambda)

The paper states q = 1 in (c) and derives q = 2; it calls sigma_k^2 a variance where the last step needs the scatter;
and it has 1/D_k^2 in (b) where the derivation gives 1/(D_k D), which is smaller. All readings are implemented.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedtide.core.array_types import Floats

Spread = Literal["scatter", "variance"]


@dataclass(frozen=True)
class Work:
    """Local work in a round, arrays [K]: samples D_k, samples per batch B_k <= D_k, local steps e_k."""

    samples: Floats
    batch: Floats
    steps: Floats


@dataclass(frozen=True)
class Constants:
    """Constants of a session: smoothness beta, Theta, zeta_2, and sigma_k^2 [K] (scatter of the samples of each client)."""

    beta: float
    theta: float
    zeta2: float
    scatter: Floats


@dataclass(frozen=True)
class Terms:
    """The bound of one round; ``b_tight`` is (b) with 1/(D_k D)."""

    a: float
    b: float
    b_tight: float
    c: float
    d: float

    @property
    def total(self) -> float:
        """(a) + (b) + (c) + (d)."""
        return self.a + self.b + self.c + self.d


def drift(beta: float, lr: float, steps: float, zeta1: float = 1.0) -> float:
    """Lambda, the smallest value that satisfies the second step-size condition; NaN if there is none.

    ``q = 4 beta^2 eta^2 e_max (e_max - 1)``; ``Lambda = q zeta_1 / (1 - q)``, for q < 1 and Lambda < min(1, zeta_1).
    """
    q = 4 * (beta * lr) ** 2 * steps * (steps - 1)
    found = q * zeta1 / (1 - q) if q < 1 else math.inf
    return found if found < min(1.0, zeta1) else math.nan


def largest_rate(beta: float, steps: float) -> float:
    """The first step-size condition, eta < (1/2 - (1/e_min - 1)^2) / beta; negative from e_min = 4 on.

    The bracket arises from comparing grad F with the sum of the gradients of e steps; a mean over the steps would avoid it.
    """
    return (0.5 - (1 / steps - 1) ** 2) / beta


def terms(
    work: Work,
    constants: Constants,
    lr: float,
    loss: float,
    next_loss: float,
    theta_power: Literal[1, 2] = 2,
    spread: Spread = "scatter",
) -> Terms:
    """The bound of one round; all NaN where Lambda does not exist.

    Args:
        work, constants: of the session.
        lr: eta of the round.
        loss, next_loss: F(w_t), F(w_t+1).
        theta_power: q in (c).
        spread: what sigma_k^2 is: the scatter, or the scatter over D_k - 1.
    """
    n, batch, e = work.samples, work.batch, work.steps
    beta, theta = constants.beta, constants.theta
    sigma = constants.scatter if spread == "scatter" else constants.scatter / np.maximum(n - 1, 1)
    scale = 1 / (1 - drift(beta, lr, float(e.max())))
    left = sigma * e * (n - batch) / (batch * n)
    walked = (e - 1) * (1 - batch / n) * theta**theta_power * sigma / batch
    return Terms(
        a=2 * (loss - next_loss) / lr * scale,
        b=4 * beta * theta**2 * lr * scale * float((left / n).sum()),
        b_tight=4 * beta * theta**2 * lr * scale * float((left / n.sum()).sum()),
        c=4 * (beta * lr) ** 2 / float(n.sum()) * scale * float(walked.sum()),
        d=8 * (beta * lr) ** 2 * float(e.max() * (e.max() - 1)) * constants.zeta2 * scale,
    )
