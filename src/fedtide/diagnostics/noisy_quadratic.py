"""The noisy quadratic model of continual federated learning: an exact testbed (Guo, Lin and Tang 2021, section 5).

``f(w) = 1/2 w'Aw + B'w``; at local step k of round t client i observes the gradient ``Aw + B + delta_i + xi_{t,i} +
nu_{t,i,k}`` with zero-mean normal noises of total second moments 0.01, 0.01 (small, SRD) or 100 (big round drift, BRD), and
1e-5. The loss is ``|Aw + B|``. CFL approximates past objectives by Taylor expansions with the full matrix A, which are exact
up to nu: no information is lost, R = 0, and all rounds have weight 1/t.

Unspecified in the paper and chosen here: dimension 20, 10 clients, 5 local steps, 100 rounds, start at 5 in every coordinate,
eigenvalues equally spaced from mu to L, a Haar rotation, B = -A w* with normal w*, mu = 0.1 in FedProx. The paper omits the
1/2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedtide.core.randomness import generator

Floats = NDArray[np.float64]
Method = Literal["fedavg", "fedprox", "cfl"]
METHODS: tuple[Method, ...] = ("fedavg", "fedprox", "cfl")

DIMENSION, CLIENTS, STEPS, ROUNDS, PROXIMAL = 20, 10, 5, 100, 0.1
DELTA, NU = 0.01, 1e-5
"""E |delta|^2 and E |nu|^2."""
RATES = tuple(rate / 100 for rate in range(1, 41))
"""Searched learning rates; Table 7 has the same step of 0.01."""


class Setting(NamedTuple):
    """One of eight settings: E |xi|^2 of the time drift, largest and smallest eigenvalue."""

    xi: float
    largest: float
    smallest: float

    @property
    def name(self) -> str:
        """As in Table 7: small or big round drift, small or large L, strongly or generally convex."""
        drift, smooth = "SRD" if self.xi < 1 else "BRD", "SL" if self.largest < 10 else "LL"
        return f"{drift} {smooth}-{'SC' if self.smallest > 0 else 'GC'}"


SETTINGS = tuple(Setting(xi, L, mu) for xi in (0.01, 100.0) for mu in (1.0, 0.0) for L in (5.0, 20.0))


@dataclass(frozen=True)
class Problem:
    """A quadratic and its noises: A [n, n], B [n], delta [N, n], xi [T, N, n], nu [T, N, K, n]."""

    A: Floats
    B: Floats
    delta: Floats
    xi: Floats
    nu: Floats


def problem(setting: Setting, seed: int, nu: float = NU) -> Problem:
    """A random instance; ``nu`` is E |nu|^2."""
    rng = generator(seed, "noisy_quadratic")
    n = DIMENSION

    def noise(total: float, *shape: int) -> Floats:
        drawn: Floats = rng.normal(size=(*shape, n)) * np.sqrt(total / n)
        return drawn

    U, R = np.linalg.qr(rng.normal(size=(n, n)))
    U = U * np.sign(np.diag(R))  # Haar
    A = U @ np.diag(np.linspace(setting.smallest, setting.largest, n)) @ U.T
    return Problem(
        A=A,
        B=-A @ rng.normal(size=n),
        delta=noise(DELTA, CLIENTS),
        xi=noise(setting.xi, ROUNDS, CLIENTS),
        nu=noise(nu, ROUNDS, CLIENTS, STEPS),
    )


def simulate(given: Problem, method: Method, rates: Floats, curvature: Literal["full", "diagonal"] = "full") -> Floats:
    """Losses |A w_t + B| [rates, T + 1] of a method, from t = 0, for several learning rates at once.

    In round t CFL's clients follow ``(1/t) (own gradient + sum_{tau<t} (g_tau + H (w - w^_tau)))`` with the triples of their
    own earlier rounds: g is the gradient at the final local model w^ with the noise of the last step, H = A or only its
    diagonal. The diagonal is inexact in rotated coordinates; CFL then stalls.
    """
    mu = PROXIMAL if method == "fedprox" else 0.0
    H = given.A if curvature == "full" else np.diag(np.diag(given.A))
    lr = rates[:, None, None]
    w = np.full((len(rates), len(given.B)), 5.0)
    clients, n = given.delta.shape
    shift = np.zeros((len(rates), clients, n))  # sum over the client's past of g - H w^
    losses = [_loss(given, w)]
    for t, (xi, nu) in enumerate(zip(given.xi, given.nu, strict=True), start=1):
        local, start = np.repeat(w[:, None], clients, axis=1), w[:, None]
        fixed, gradient = given.B + given.delta + xi, np.zeros_like(shift)
        with np.errstate(over="ignore", invalid="ignore"):
            for step in range(nu.shape[1]):
                gradient = local @ given.A + fixed + nu[:, step]
                if method == "cfl":
                    gradient = (gradient + shift + (t - 1) * local @ H) / t
                local = local - lr * (gradient + mu * (local - start))
            shift = shift + local @ given.A + fixed + nu[:, -1] - local @ H
            w = local.mean(1)
            losses.append(_loss(given, w))
    return np.stack(losses, 1)


def recursion(given: Problem, method: Method, rate: float) -> Floats:
    """Gradients r_t = A w_t + B [T + 1, n] without the noise nu: ``r_{t+1} = (I - P) r_t - P u``.

    ``P = lr A sum_{k<K} (I - lr (A + mu I))^k``; u is the clients' mean of ``delta + xi_t``, for CFL averaged over all
    rounds so far. With mu = 0 ``I - P = (I - lr A)^K``.
    """
    n, steps = len(given.B), given.nu.shape[2]
    mu = PROXIMAL if method == "fedprox" else 0.0
    inner = np.eye(n) - rate * (given.A + mu * np.eye(n))
    P = rate * given.A @ sum(np.linalg.matrix_power(inner, k) for k in range(steps))
    u = (given.delta + given.xi).mean(1)
    if method == "cfl":
        u = u.cumsum(0) / np.arange(1, len(u) + 1)[:, None]
    r = [given.A @ np.full(n, 5.0) + given.B]
    for now in u:
        r.append(r[-1] - P @ (r[-1] + now))
    return np.stack(r)


def stationary(setting: Setting, rate: float) -> float:
    """Stationary E |A w + B|^2 of FedAvg without delta and nu; infinite unless ``rate < 2 / L``.

    ``sum_j (1 - m_j) / (1 + m_j) E|xi|^2 / (N n)``, ``m_j = (1 - rate lambda_j)^K``.
    """
    if rate >= 2 / setting.largest:
        return float("inf")
    m = (1 - rate * np.linspace(setting.smallest, setting.largest, DIMENSION)) ** STEPS
    return float(((1 - m) / (1 + m)).sum() * setting.xi / (CLIENTS * DIMENSION))


class Best(NamedTuple):
    """A method's best learning rate, and its mean loss over the last ten rounds."""

    rate: float
    loss: float


def best_rates(
    setting: Setting, seeds: tuple[int, ...], rates: tuple[float, ...] = RATES, window: int = ROUNDS
) -> dict[Method, Best]:
    """The best learning rate of every method, by the mean loss over the last ``window`` rounds and the seeds."""
    grid = np.array(rates)
    found: dict[Method, Best] = {}
    for method in METHODS:
        losses = np.mean([simulate(problem(setting, seed), method, grid) for seed in seeds], axis=0)
        means = np.where(np.isfinite(losses).all(1), losses[:, -window:].mean(1), np.inf)
        place = int(means.argmin())
        found[method] = Best(rates[place], float(losses[place, -10:].mean()))
    return found


def _loss(given: Problem, w: Floats) -> Floats:
    norm: Floats = np.linalg.norm(w @ given.A + given.B, axis=-1)
    return norm
