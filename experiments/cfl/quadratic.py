"""The noisy quadratic model of CFL: Table 7 and Figure 2 of the paper (Guo, Lin and Tang 2021, section 5).

    python experiments/cfl/quadratic.py [--seeds 5] [--curves figure2.csv]

prints the best learning rates of FedAvg, FedProx and CFL in eight settings beside the published ones, and the mean loss over
the last ten rounds. ``--curves`` writes the losses over the rounds at these rates.

``f(w) = 1/2 w'Aw + B'w``; at local step k of round t client i observes the gradient ``Aw + B + delta_i + xi_{t,i} +
nu_{t,i,k}`` with zero-mean normal noises of total second moments 0.01, 0.01 (small round drift, SRD) or 100 (big, BRD), and
1e-5. The loss is ``|Aw + B|``. CFL approximates past objectives by Taylor expansions with the full matrix A, which are exact
up to nu: no information is lost, R = 0, and all rounds have weight 1/t.

Unspecified in the paper and chosen here: dimension 20, 10 clients, 5 local steps, 100 rounds, start at 5 in every coordinate,
eigenvalues equally spaced from mu to L, a Haar rotation, B = -A w* with normal w*, mu = 0.1 in FedProx. The paper omits the
1/2.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from fedtide.core.array_types import Floats
from fedtide.core.randomness import generator
from fedtide.core.storage.files import write_text

METHODS = ("fedavg", "fedprox", "cfl")
DIMENSION, CLIENTS, STEPS, ROUNDS, PROXIMAL = 20, 10, 5, 100, 0.1
DELTA, NU = 0.01, 1e-5  # E |delta|^2 and E |nu|^2
RATES = tuple(rate / 100 for rate in range(1, 41))  # Table 7 has the same step of 0.01
PUBLISHED = Path(__file__).with_name("table7_rates.csv")


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


class Problem(NamedTuple):
    """A quadratic and its noises: A [n, n], B [n], delta [N, n], xi [T, N, n], nu [T, N, K, n]."""

    A: Floats
    B: Floats
    delta: Floats
    xi: Floats
    nu: Floats

    def loss(self, w: Floats) -> Floats:
        """|Aw + B| of models w [..., n]."""
        norm: Floats = np.linalg.norm(w @ self.A + self.B, axis=-1)
        return norm


def problem(setting: Setting, seed: int, nu: float = NU) -> Problem:
    """A random instance; ``nu`` is E |nu|^2."""
    rng = generator(seed, "noisy_quadratic")
    n = DIMENSION

    def noise(total: float, *shape: int) -> Floats:
        values: Floats = rng.normal(size=(*shape, n)) * np.sqrt(total / n)
        return values

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


def simulate(given: Problem, method: str, rates: Floats) -> Floats:
    """Losses [rates, T + 1] of a method, from t = 0, for several learning rates at once.

    In round t CFL's clients follow ``(1/t) (own gradient + sum_{tau<t} (g_tau + A (w - w^_tau)))`` with the triples of their
    own earlier rounds: g is the gradient at the final local model w^ with the noise of the last step.
    """
    mu = PROXIMAL if method == "fedprox" else 0.0
    lr = rates[:, None, None]
    w = np.full((len(rates), DIMENSION), 5.0)
    past = np.zeros((len(rates), *given.delta.shape))  # sum over the client's past of g - A w^
    losses = [given.loss(w)]
    for t, (xi, nu) in enumerate(zip(given.xi, given.nu, strict=True), start=1):
        local, start = np.repeat(w[:, None], CLIENTS, axis=1), w[:, None]
        fixed = given.B + given.delta + xi
        with np.errstate(over="ignore", invalid="ignore"):
            for step in range(STEPS):
                gradient = local @ given.A + fixed + nu[:, step]
                if method == "cfl":
                    gradient = (gradient + past + (t - 1) * local @ given.A) / t
                local = local - lr * (gradient + mu * (local - start))
            past = past + local @ given.A + fixed + nu[:, -1] - local @ given.A
            w = local.mean(1)
            losses.append(given.loss(w))
    return np.stack(losses, 1)


def best(setting: Setting, method: str, seeds: range, rates: tuple[float, ...] = RATES) -> tuple[float, Floats]:
    """The learning rate with the smallest mean loss over rounds and seeds, and its losses [T + 1], mean over the seeds."""
    losses = np.mean([simulate(problem(setting, seed), method, np.array(rates)) for seed in seeds], axis=0)
    means = np.where(np.isfinite(losses).all(1), losses[:, 1:].mean(1), np.inf)
    chosen = int(means.argmin())
    return rates[chosen], losses[chosen]


def main(seeds: int, curves: Path | None) -> None:
    """Print the table and write the curves."""
    published = pd.read_csv(PUBLISHED, dtype=str).set_index(["setting", "method"])["rate"]
    rows, lines = [], []
    for setting in SETTINGS:
        for method in METHODS:
            rate, losses = best(setting, method, range(seeds))
            name = setting.name
            rows.append((name, method, f"{rate:g}", published.get((name, method), ""), f"{losses[-10:].mean():.4f}"))
            lines += [(name, method, t, loss) for t, loss in enumerate(losses.tolist())]
    columns = ["setting", "method", "best rate", "published", "loss, last 10 rounds"]
    print(pd.DataFrame(rows, columns=columns).to_string(index=False))
    if curves is not None:
        frame = pd.DataFrame(lines, columns=["setting", "method", "round", "loss"])
        write_text(curves, frame.to_csv(index=False, lineterminator="\n", float_format="%.6g"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The noisy quadratic model of CFL (Table 7).")
    parser.add_argument("--seeds", type=int, default=5, help="number of random instances to average")
    parser.add_argument("--curves", type=Path, help="CSV file to write the losses over the rounds to (Figure 2)")
    given = parser.parse_args()
    if given.seeds < 1:
        parser.error(f"--seeds = {given.seeds}: should be at least 1")
    if given.curves is not None and not given.curves.parent.is_dir():
        parser.error(f"--curves {given.curves}: no folder {given.curves.parent}")
    main(given.seeds, given.curves)
