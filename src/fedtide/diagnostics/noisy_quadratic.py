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
from typing import Any, Literal, NamedTuple

import numpy as np

from fedtide.core.array_types import Floats
from fedtide.core.randomness import generator

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


def comparison(seeds: tuple[int, ...]) -> tuple[list[dict[str, Any]], list[tuple[str, Method, int, float]]]:
    """All methods in all settings.

    Returns:
        Rows ``setting, method, rate, loss`` as :class:`Best` has them, and at these rates the losses over the rounds, mean over
        the seeds: (setting, method, t, loss) from t = 0.
    """
    rows: list[dict[str, Any]] = []
    curves: list[tuple[str, Method, int, float]] = []
    for setting in SETTINGS:
        for method, (rate, loss) in best_rates(setting, seeds).items():
            rows.append({"setting": setting.name, "method": method, "rate": rate, "loss": loss})
            found = [simulate(problem(setting, seed), method, np.array([rate]))[0] for seed in seeds]
            curves += [(setting.name, method, t, value) for t, value in enumerate(np.mean(found, axis=0).tolist())]
    return rows, curves


def _loss(given: Problem, w: Floats) -> Floats:
    norm: Floats = np.linalg.norm(w @ given.A + given.B, axis=-1)
    return norm
