"""CFL-Core-Set."""

from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from fedtide.methods.algorithms._continual import ContinualSettings, Replay
from fedtide.methods.algorithms.base import Ints, Round


class CflCoreSet(Replay):
    """Clients keep some samples of every subset they have held and train on them too (Guo, Lin and Tang 2021).

    In its first round with a subset a client stores ``size`` of its samples for good. ``uniform`` draws them; ``herding``
    (Algorithm 3, Rebuffi et al. 2017) picks, class by class, the sample that brings the mean feature of those picked closest
    to the mean of the class, under the received model.

    Not given in the paper and chosen here: features have unit length as in iCaRL's released code, no sample is picked twice,
    and classes have equal shares as far as their samples go.

    References:
        Guo, Lin and Tang 2021. Towards Federated Learning on Time-Evolving Heterogeneous Data.
    """

    class Settings(ContinualSettings):
        name: str = "cfl_core_set"
        size: int = Field(100, ge=0, description="samples stored per subset")
        choice: Literal["uniform", "herding"] = Field("uniform", description="which samples are stored")

    settings: Settings

    admits = ("rules",)
    needs_classes = True

    def pick(self, r: Round, rows: list[int]) -> list[Ints]:
        sets, size = [r.services.positions(r.shard_ids[row]) for row in rows], self.settings.size
        if self.settings.choice == "uniform":
            draws = [self.problem.randomness.generator("core_set", r.ids[row], r.shard_ids[row]) for row in rows]
            return [
                np.sort(rng.choice(samples, min(size, len(samples)), replace=False))
                for rng, samples in zip(draws, sets, strict=True)
            ]
        own = dict(zip(rows, sets, strict=True))
        passed = r.services.forward(r.w, [own.get(row, np.zeros(0, np.int64)) for row in range(len(r.ids))])
        return [
            self._herded(samples, r.services.labels(samples), functional.normalize(passed[row].features, dim=1))
            for row, samples in own.items()
        ]

    def _herded(self, samples: Ints, labels: Ints, phi: Tensor) -> Ints:
        classes, counts = np.unique(labels, return_counts=True)
        picked = [
            samples[labels == label][herd(phi[torch.from_numpy(labels == label)], share)]
            for label, share in zip(classes, equal_shares(counts, self.settings.size), strict=True)
        ]
        return np.sort(np.concatenate(picked))


def herd(phi: Tensor, count: int) -> list[int]:
    """Algorithm 3: rows of ``phi`` [n, q] in the order picked; pick k minimizes |mu - (phi + sum of those picked) / k|."""
    mu, total = phi.mean(0), torch.zeros_like(phi[0])
    picked: list[int] = []
    for k in range(1, count + 1):
        distance = torch.linalg.vector_norm(mu - (phi + total) / k, dim=1)
        distance[picked] = torch.inf
        picked.append(int(distance.argmin()))
        total = total + phi[picked[-1]]
    return picked


def equal_shares(sizes: Ints, total: int) -> Ints:
    """``total`` (or all) divided among classes of these sizes, as equally as the sizes allow; first classes first."""
    shares = np.zeros_like(sizes)
    while rest := min(total, int(sizes.sum())) - int(shares.sum()):
        open_ = np.flatnonzero(shares < sizes)
        more = np.full(len(open_), rest // len(open_)) if rest >= len(open_) else np.arange(len(open_)) < rest
        shares[open_] = np.minimum(shares[open_] + more, sizes[open_])
    return shares
