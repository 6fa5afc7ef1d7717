"""The convergence bound of dynamic initialization (Chang et al.), measured on a run of softmax regression.

    python experiments/dynamic_init/bound.py params.yaml [KEY=VALUE ...] [--theta-power 1] [--spread variance]

trains the run in float64 without recording it and prints, for every session, the training losses of the candidate initial
models, the constants of the analysis and the terms of the bound. For FedAvg with full participation and without momentum::

    (1/ST) sum |grad F(w_t)|^2 <= mean over rounds of (a) + (b) + (c) + (d)

    a = 2 (F(w_t) - F(w_t+1)) / (eta (1 - Lambda))
    b = 4 beta Theta^2 eta / (1 - Lambda) sum_k sigma_k^2 e_k (D_k - B_k) / (B_k D_k^2)
    c = 4 beta^2 eta^2 / (D (1 - Lambda)) sum_k (e_k - 1)(1 - B_k/D_k) Theta^q sigma_k^2 / B_k
    d = 8 beta^2 eta^2 e_max (e_max - 1) zeta_2 / (1 - Lambda)

with zeta_1 = 1; client k has D_k samples, batches of B_k samples and e_k local steps. The paper states q = 1 in (c) and
derives q = 2 (``--theta-power``); it calls sigma_k^2 a variance where the last step needs the scatter (``--spread``); and it
has 1/D_k^2 in (b) where the derivation gives 1/(D_k D), which is smaller: both are shown. Theta is a lower bound from sampled
pairs, the other constants are exact along the run's trajectory.
"""

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional

from fedtide.cli.exits import guarded
from fedtide.core.array_types import Floats
from fedtide.core.errors import Diverged, SettingsError
from fedtide.core.randomness import generator
from fedtide.federation.assembly.choose import choose
from fedtide.federation.assembly.hardware import Hardware
from fedtide.federation.assembly.parts import assemble
from fedtide.federation.federation import Federation
from fedtide.federation.state import initial_state
from fedtide.settings.params import Params
from fedtide.settings.run import RunSettings
from fedtide.training.engine.plan import step_count
from fedtide.world.building.build import build_timeline
from fedtide.world.concepts import under
from fedtide.world.dataset import Dataset
from fedtide.world.storage.prepared import load_data
from fedtide.world.timeline import Timeline

ROWS = {
    "F_init": "F of its initial model",
    "F_previous": "F of the previous final model",
    "F_average": "F of the mean of final models since the pilot",
    "F_first": "F of the run's initial model",
    "F_end": "F of its final model",
    "gradient": "mean |grad F|^2",
    "beta": "beta",
    "theta": "Theta (lower bound)",
    "sigma": "sigma",  # root of the largest sigma_k^2
    "zeta2": "zeta_2",  # largest over the rounds
    "drift": "Lambda",  # of the first round, as the next two
    "rate": "eta",
    "largest_rate": "largest eta allowed",
    "a": "(a) descent",
    "b": "(b) sampling, 1/D_k",
    "b_tight": "(b) sampling, 1/D",
    "c": "(c) sampling while drifting",
    "d": "(d) drift",
    "bound": "bound",
}
"""Column of :func:`measured` -> row of the printed table. F is on the session's data; terms are means over its rounds."""


class Problem:
    """F(M) = sum_k p_k F_k(M), p_k = D_k / D, with F_k the mean cross-entropy of ``M (x, 1)`` on client k, in float64.

    Args:
        inputs: samples of each client, float64 [D_k, f].
        labels: int64 [D_k].
        classes: L; M is [L, f + 1], the last column being the bias.
    """

    def __init__(self, inputs: Sequence[Tensor], labels: Sequence[Tensor], classes: int) -> None:
        self.classes, self.labels = classes, list(labels)
        self.features = [functional.pad(part, (0, 1), value=1.0) for part in inputs]
        self.sizes = torch.tensor([len(part) for part in labels], dtype=torch.float64)
        self.weights = self.sizes / self.sizes.sum()

    def loss(self, m: Tensor) -> float:
        """F(M)."""
        parts = [
            functional.cross_entropy(x @ m.T, y, reduction="sum")
            for x, y in zip(self.features, self.labels, strict=True)
        ]
        return float(torch.stack(parts).sum() / self.sizes.sum())

    def gradients(self, m: Tensor) -> Tensor:
        """grad F_k(M) of every client, [K, L, f + 1]."""
        return torch.stack(
            [self._residuals(m, x, y).T @ x / len(y) for x, y in zip(self.features, self.labels, strict=True)]
        )

    def gradient(self, gradients: Tensor) -> Tensor:
        """grad F = sum_k p_k grad F_k, [L, f + 1]."""
        return torch.einsum("k,klf->lf", self.weights, gradients)

    def dissimilarity(self, gradients: Tensor) -> float:
        """zeta_2 at one point with zeta_1 = 1: sum_k p_k |grad F_k|^2 - |grad F|^2 >= 0."""
        own = gradients.flatten(1).square().sum(1)
        return float(self.weights @ own - self.gradient(gradients).square().sum())

    def smoothness(self) -> float:
        """beta = max_k 1/2 lambda_max((1/D_k) sum x x^T), the bias being a constant feature.

        An upper bound for every F_k: the Hessian is the mean of (diag(p) - p p^T) (x) x x^T, whose first factor is at most
        1/2; attained by two classes of probability 1/2.
        """
        return max(
            0.5 * float(torch.linalg.eigvalsh((x @ x.T if len(x) < x.shape[1] else x.T @ x) / len(x))[-1])
            for x in self.features
        )

    def scatter(self) -> Tensor:
        """sum_d |d - mean|^2 over the samples of every client, [K]; sigma^2 as the last step of the analysis needs it."""
        return torch.stack([(x - x.mean(0)).square().sum() for x in self.features])

    def lipschitz(self, m: Tensor, pairs: int, seed: int) -> float:
        """Lower bound of Theta: largest |grad f(M, d) - grad f(M, d')| / |d - d'| over ``pairs`` sampled pairs of each client.

        Only pairs with the same label and different features: equal features with different labels would make it infinite.
        """
        highest = 0.0
        for client, (x, y) in enumerate(zip(self.features, self.labels, strict=True)):
            a, b = torch.from_numpy(generator(seed, "diagnose.pairs", client).integers(0, len(y), (2, pairs)))
            r = self._residuals(m, x, y)
            # |r x^T - r' x'^T|^2 without the matrices
            own = r.square().sum(1) * x.square().sum(1)
            square = own[a] + own[b] - 2 * (r[a] * r[b]).sum(1) * (x[a] * x[b]).sum(1)
            distance = (x[a] - x[b]).square().sum(1)
            usable = (y[a] == y[b]) & (distance > 0)
            if usable.any():
                ratio = square[usable].clamp(min=0) / distance[usable]
                highest = max(highest, float(ratio.max().sqrt()))
        return highest

    def _residuals(self, m: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return functional.softmax(x @ m.T, dim=1) - functional.one_hot(y, self.classes)


class Work(NamedTuple):
    """Local work in a round, arrays [K]: samples D_k, samples per batch B_k <= D_k, local steps e_k."""

    samples: Floats
    batch: Floats
    steps: Floats


class Constants(NamedTuple):
    """Constants of a session: beta, Theta, zeta_2 and sigma_k^2 [K]."""

    beta: float
    theta: float
    zeta2: float
    sigma2: Floats


def drift(beta: float, lr: float, steps: float) -> float:
    """Lambda, the smallest value that satisfies the second step-size condition; NaN if there is none.

    ``q = 4 beta^2 eta^2 e_max (e_max - 1)``; ``Lambda = q / (1 - q)``, for q < 1 and Lambda < 1.
    """
    q = 4 * (beta * lr) ** 2 * steps * (steps - 1)
    found = q / (1 - q) if q < 1 else math.inf
    return found if found < 1 else math.nan


def largest_rate(beta: float, steps: float) -> float:
    """The first step-size condition, eta < (1/2 - (1/e_min - 1)^2) / beta; negative from e_min = 4 on.

    The bracket arises from comparing grad F with the sum of the gradients of e steps; a mean over the steps would avoid it.
    """
    return (0.5 - (1 / steps - 1) ** 2) / beta


def terms(work: Work, constants: Constants, lr: float, descent: float, theta_power: int = 2) -> dict[str, float]:
    """The bound of one round with ``descent`` F(w_t) - F(w_t+1), and its terms; all NaN where Lambda does not exist."""
    n, batch, e = work
    beta, theta, zeta2, sigma2 = constants
    scale = 1 / (1 - drift(beta, lr, float(e.max())))
    left = sigma2 * e * (n - batch) / (batch * n)
    walked = (e - 1) * (1 - batch / n) * theta**theta_power * sigma2 / batch
    found = {
        "a": 2 * descent / lr * scale,
        "b": 4 * beta * theta**2 * lr * scale * float((left / n).sum()),
        "b_tight": 4 * beta * theta**2 * lr * scale * float((left / n.sum()).sum()),
        "c": 4 * (beta * lr) ** 2 / float(n.sum()) * scale * float(walked.sum()),
        "d": 8 * (beta * lr) ** 2 * float(e.max() * (e.max() - 1)) * zeta2 * scale,
    }
    return {**found, "bound": found["a"] + found["b"] + found["c"] + found["d"]}


def remarks(settings: RunSettings) -> list[str]:
    """Assumptions of the analysis that a run violates."""
    local, weighting = settings.local, settings.algorithm.weighting.name
    unmet = [
        (settings.algorithm.name != "fedavg", f"algorithm {settings.algorithm.name}: the analysis is for fedavg"),
        (weighting != "samples", f"algorithm.weighting {weighting}: F weights clients by samples"),
        (
            settings.communication.name != "per_round",
            f"communication {settings.communication.name}: the analysis averages once a round",
        ),
        (local.momentum > 0, f"local.momentum = {local.momentum:g}: the analysis has none"),
        (local.optimizer.name != "sgd", f"local.optimizer {local.optimizer.name}: the analysis is for sgd"),
        (local.weight_decay > 0, "local.weight_decay: not part of F"),
        (bool(local.clip), "local.clip: the constants are for unclipped gradients"),
        (local.flip > 0 or local.crop > 0, "local.flip, local.crop: F is over unaugmented samples"),
        (settings.participation.name != "all", "participation: the analysis assumes full participation"),
    ]
    return [text for violated, text in unmet if violated]


class Session(NamedTuple):
    """A trained session; ``models`` [T + 1] begin with its initial one, ``rates`` [T], ``previous`` is the model before it."""

    problem: Problem
    work: Work
    models: list[Tensor]
    rates: list[float]
    previous: Tensor


def sessions(settings: RunSettings, data: Dataset, timeline: Timeline) -> Iterator[Session]:
    """Train in float64, session by session.

    Raises:
        SettingsError: not softmax regression, or clients or their data change inside a session. Diverged: training diverged.
    """
    if settings.model.name != "softmax_regression" or settings.objective.name != "cross_entropy":
        raise SettingsError(
            f"model {settings.model.name} with objective {settings.objective.name}: the constants are known "
            "only for model softmax_regression with objective cross_entropy"
        )
    changes = np.flatnonzero(np.diff(timeline.assignment_of_round)) + 1
    if len(inside := np.setdiff1d(changes, timeline.session_starts)):
        raise SettingsError(
            f"scenario {settings.scenario.name}: in round {inside[0] + 1} clients or their data change inside a session; the "
            "analysis assumes that they do not"
        )
    data, local = under(data, timeline.concepts), settings.local
    parts = assemble(choose(settings, timeline, data), timeline, data, Hardware(dtype=torch.float64))
    federation, state = Federation(parts), initial_state(parts)

    def matrix(w: Tensor) -> Tensor:
        named = parts.layout.named(w)
        return torch.cat([named["head.weight"], named["head.bias"].unsqueeze(1)], 1).to(torch.float64).clone()

    try:
        while state.round < timeline.rounds:
            shards = [shard for shard in timeline.shards_at(state.round) if len(shard) > 0]
            samples = [parts.data.read("train", torch.from_numpy(shard)) for shard in shards]
            inputs = [parts.data.prepare(part, torch.float64).flatten(1) for part, _ in samples]
            sizes, mean = np.array([len(shard) for shard in shards]), float(timeline.sizes_at(state.round).mean())
            steps = np.array([step_count(int(size), mean, local) for size in sizes])
            found = Session(
                Problem(inputs, [labels for _, labels in samples], data.num_classes),
                Work(sizes.astype(float), np.minimum(sizes, local.step_samples).astype(float), steps.astype(float)),
                models=[],
                rates=[],
                previous=matrix(state.w),
            )
            for _ in range(timeline.session_span(state.round)[1]):
                record = federation.run_round(state)
                found.rates.append(float(record.row["lr"]))
                found.models.extend(matrix(w) for w in (record.initial, state.w) if w is not None)
            yield found
    finally:
        parts.workers.close()


def measured(
    settings: RunSettings,
    data: Dataset,
    timeline: Timeline,
    theta_power: int = 2,
    spread: str = "scatter",
    pairs: int = 1000,
) -> pd.DataFrame:
    """A row per session (from 1), with columns ``rounds`` and :data:`ROWS`; raises as :func:`sessions`.

    Args:
        settings, data, timeline: of the run.
        theta_power: q in (c).
        spread: what sigma_k^2 is: ``scatter``, or ``variance``, the scatter over D_k - 1.
        pairs: sampled per client for Theta.
    """
    rows: list[dict[str, float]] = []
    finals: list[Tensor] = []
    first: Tensor | None = None
    for session in sessions(settings, data, timeline):
        problem, work, models, rates, previous = session
        first = previous if first is None else first
        losses, gradients = [problem.loss(m) for m in models], [problem.gradients(m) for m in models[:-1]]
        since_pilot = finals[timeline.pilot :]
        scatter = problem.scatter().numpy()
        constants = Constants(
            beta=problem.smoothness(),
            theta=max(problem.lipschitz(m, pairs, settings.seed) for m in (models[0], models[-1])),
            zeta2=max(problem.dissimilarity(g) for g in gradients),
            sigma2=scatter if spread == "scatter" else scatter / np.maximum(work.samples - 1, 1),
        )
        rounds = [
            terms(work, constants, lr, before - after, theta_power)
            for lr, (before, after) in zip(rates, pairwise(losses), strict=True)
        ]
        rows.append(
            {
                "rounds": len(rates),
                "F_init": losses[0],
                "F_previous": problem.loss(previous),
                "F_average": problem.loss(torch.stack(since_pilot).mean(0)) if since_pilot else math.nan,
                "F_first": problem.loss(first),
                "F_end": losses[-1],
                "gradient": float(np.mean([float(problem.gradient(g).square().sum()) for g in gradients])),
                "beta": constants.beta,
                "theta": constants.theta,
                "sigma": float(np.sqrt(constants.sigma2.max())),
                "zeta2": constants.zeta2,
                "drift": drift(constants.beta, rates[0], float(work.steps.max())),
                "rate": rates[0],
                "largest_rate": min(
                    largest_rate(constants.beta, float(e)) for e in (work.steps.min(), work.steps.max())
                ),
                **{name: float(np.mean([found[name] for found in rounds])) for name in rounds[0]},
            }
        )
        finals.append(models[-1])
        print(f"session {len(rows)}: F {losses[0]:.4f} -> {losses[-1]:.4f}", file=sys.stderr)
    return pd.DataFrame(rows, index=pd.RangeIndex(1, len(rows) + 1, name="session"))


def main() -> None:
    """Read the settings, measure, print."""
    parser = argparse.ArgumentParser(description="The convergence bound of dynamic initialization, on a run.")
    parser.add_argument("params", type=Path, help="settings file")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="override one setting")
    parser.add_argument(
        "--theta-power", type=int, choices=(1, 2), default=2, help="of Theta in (c): published or derived"
    )
    parser.add_argument("--spread", choices=("scatter", "variance"), default="scatter", help="what sigma_k^2 is")
    given = parser.parse_args()
    params = Params.read(given.params, given.overrides)
    settings = params.run()
    data = load_data(settings)
    try:
        rows = measured(settings, data, build_timeline(settings, data), given.theta_power, given.spread)
    except Diverged as error:
        sys.exit(str(error))
    for line in [*params.remarks, *remarks(settings)]:
        print(line, file=sys.stderr)
    print(rows[list(ROWS)].rename(columns=ROWS).T.to_string(float_format="{:.4g}".format))


if __name__ == "__main__":
    guarded(main)
