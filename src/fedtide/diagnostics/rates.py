"""Convergence rates of continual federated learning, as formulas (Guo, Lin and Tang 2021, Table 1, Theorems 4.1 to 4.5).

All values are up to the constants hidden by O(.): they can be compared with each other and with their limits, not with
actual numbers of rounds. Bounds are squared: ``G2 = G^2`` client drift, ``D2 = D^2`` time drift, ``R2 = R^2`` information loss,
``A2``, ``B2`` the parts of the drifts that grow with the gradient, ``sigma2`` noise of local gradients.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class World:
    """A federation and its objective.

    Attributes:
        N, K: clients per round, local steps. eta_g: server learning rate.
        L, mu: smoothness, strong convexity (0: convex only).
        G2, D2, R2, A2, B2, sigma2: see the module. F: ``|w_0 - w*|^2``.
        stateful: whether clients remember their past data; otherwise client drift adds to time drift.
    """

    N: int
    K: int
    L: float = 1.0
    mu: float = 0.0
    eta_g: float = 1.0
    G2: float = 0.0
    D2: float = 0.0
    R2: float = 0.0
    A2: float = 0.0
    B2: float = 0.0
    sigma2: float = 0.0
    F: float = 1.0
    stateful: bool = True

    @property
    def c_O(self) -> float:  # noqa: N802 - the paper's symbol
        """1 + A^2 + B^2."""
        return 1 + self.A2 + self.B2

    @property
    def c_A(self) -> float:  # noqa: N802
        """The part that memory does not remove: ``G^2 + D^2 R^2 / (R^2 + D^2)``; stateless: D^2 + G^2 for D^2, 0 for G^2."""
        drift = self.D2 if self.stateful else self.D2 + self.G2
        return (self.G2 if self.stateful else 0.0) + _ratio(drift * self.R2, self.R2 + drift)

    @property
    def c_B(self) -> float:  # noqa: N802
        """The part that vanishes over the rounds: ``D^6 / (R^2 + D^2)^2``; stateless: D^2 + G^2 for D^2."""
        drift = self.D2 if self.stateful else self.D2 + self.G2
        return _ratio(drift**3, (self.R2 + drift) ** 2)


def largest_local_rate(world: World) -> float:
    """The condition on eta_l for eta_g = 1: ``(sqrt(3 + 4c) - sqrt(4c)) / (6 K L sqrt(c))``, c = c_O.

    The appendix once has 12 instead of 6.
    """
    c = world.c_O
    return (math.sqrt(3 + 4 * c) - math.sqrt(4 * c)) / (6 * world.K * world.L * math.sqrt(c))


def one_round(world: World, weights: Sequence[Sequence[float]], eta_l: float, before: float, after: float) -> float:
    """Bound on ``f(w_t) - f*`` (Theorem 4.1), phi_t included.

    ``(1/eta) (1 - mu eta / 2) before - after / eta + c_1 eta + c_2 eta^2 + phi_t``, ``eta = K eta_g eta_l``, with
    ``phi_t = (2/N) sum_i sum_{tau<t} p_{tau,i} R |w_0 - w*|``; the theorem has p_{t,i} there, its proof p_{tau,i}.

    Args:
        world: the federation and its objective.
        weights: of each client p_{1,i}, ..., p_{t,i}, which sum to one.
        eta_l: local learning rate.
        before, after: ``|w_t - w*|^2`` and ``|w_{t+1} - w*|^2``.
    """
    clients = len(weights)
    eta, L = world.K * world.eta_g * eta_l, world.L
    past = [sum(p[:-1]) for p in weights]
    c_pG = sum(world.G2 + world.D2 * sum(value**2 for value in p) for p in weights) / clients
    c_R = sum(share**2 for share in past) / clients * world.R2
    c_1 = 2 * c_pG + world.sigma2 / (world.N * world.K) + 2 * c_R
    c_2 = L / (3 * world.eta_g**2) * (c_pG + world.sigma2 / (2 * world.K) + c_R)
    phi = 2 / clients * sum(past) * math.sqrt(world.R2 * world.F)
    return (1 - world.mu * eta / 2) * before / eta - after / eta + c_1 * eta + c_2 * eta**2 + phi


def rounds_strongly_convex(world: World, epsilon: float) -> float:
    """Rounds to accuracy epsilon for mu > 0 (Theorem 4.2).

    ::

        L c_O/mu + sigma^2/(mu N K e) + c_A/(mu e) + sqrt(c_B/(mu e)) + sqrt(c_C/(mu^2 e)) + cbrt(c_D/(mu^2 e))

    with ``c_C = L/eta_g^2 (sigma^2/K + c_A)`` and ``c_D = L c_B/eta_g^2``. Table 1 omits the denominators of some roots.
    """
    mu, e, scale = world.mu, epsilon, world.L / world.eta_g**2
    return (
        world.L * world.c_O / mu
        + world.sigma2 / (mu * world.N * world.K * e)
        + world.c_A / (mu * e)
        + math.sqrt(world.c_B / (mu * e))
        + math.sqrt(scale * (world.sigma2 / world.K + world.c_A) / (mu**2 * e))
        + math.cbrt(scale * world.c_B / (mu**2 * e))
    )


def rounds_convex(world: World, epsilon: float) -> float:
    """Rounds to accuracy epsilon plus :func:`floor` for mu = 0 (Theorem 4.2).

    ::

        (c_O F + sqrt(c_B F) + cbrt(c_D F^2))/e + sigma^2 F/(N K e^2) + c_A F/e^2 + sqrt(c_C F^2/e^3)
    """
    e, F, scale = epsilon, world.F, world.L / world.eta_g**2
    return (
        (world.c_O * F + math.sqrt(world.c_B * F) + math.cbrt(scale * world.c_B * F**2)) / e
        + world.sigma2 * F / (world.N * world.K * e**2)
        + world.c_A * F / e**2
        + math.sqrt(scale * (world.sigma2 / world.K + world.c_A) * F**2 / e**3)
    )


def floor(world: World, rounds: int) -> float:
    """The accuracy lost to information loss: ``R (D^2/s - (D^2/s)^2 ln T / T) |w_0 - w*|``, s = D^2 + R^2."""
    share = _ratio(world.D2, world.D2 + world.R2)
    return math.sqrt(world.R2 * world.F) * (share - share**2 * math.log(rounds) / rounds)


def without_memory(world: World) -> World:
    """FedAvg (Theorem 4.5): the limit of infinite information loss, in which c_A = G^2 + D^2 and c_B = 0."""
    return World(**{**vars(world), "G2": world.G2 + world.D2, "D2": 0.0, "R2": 0.0, "stateful": True})


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else 0.0
