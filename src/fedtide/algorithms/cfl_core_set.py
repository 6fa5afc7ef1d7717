"""CFL-Core-Set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from fedtide.algorithms._continual import Continual, ContinualSettings
from fedtide.algorithms.base import Round
from fedtide.algorithms.round import Ints


class CflCoreSet(Continual):
    """Clients keep some samples of every subset they have met and train on them too (Guo, Lin and Tang 2021).

    In its first round with a subset a client stores ``size`` of its samples for good; from then on it trains on the union
    of what it holds and what it has stored of all other subsets, so that a stored subset weighs ``size / (N_t + sum size)``.
    ``uniform`` draws them; ``herding`` (Algorithm 3, Rebuffi et al. 2017) picks class by class the sample that brings the
    mean feature of those picked nearest to that of the class, under the model as received. ``size: 0`` is FedAvg.

    Chosen where the paper is silent: features are scaled to length one, as in the program of iCaRL, nothing is picked
    twice, classes have equal shares as far as they go. A sample is trained on once even if overlapping subsets hold it.
    The more a client has stored, the more batches an epoch has: fix ``local.unit: steps`` when comparing.
    """

    class Settings(ContinualSettings):
        """Settings of CFL-Core-Set."""

        name: str = "cfl_core_set"
        size: int = Field(100, ge=0, description="samples stored of a subset")
        choice: Literal["uniform", "herding"] = Field("uniform", description="which samples are stored")

    @property
    def stateful(self) -> bool:
        """Clients keep samples."""
        return True

    def extra(self, size: int, clients: int, classes: int) -> dict[str, Tensor]:
        """``stored``: client, subset and position of each stored sample, int64 [n, 3], in the order of the first visits."""
        return {**super().extra(size, clients, classes), "stored": torch.zeros(0, 3, dtype=torch.int64)}

    def shards(
        self, ids: Sequence[int], subsets: Sequence[int], own: Sequence[Ints], extra: dict[str, Tensor]
    ) -> Sequence[Ints]:
        """Own samples, then those stored of other subsets."""
        client, subset, position = extra["stored"].cpu().numpy().T
        found = []
        for id_, here, mine in zip(ids, subsets, own, strict=True):
            past = position[(client == id_) & (subset != here)]
            _, first = np.unique(past, return_index=True)
            past = past[np.sort(first)]
            found.append(np.concatenate([mine, past[~np.isin(past, mine)]]))
        return found

    def finish(self, r: Round) -> Tensor:
        """Store samples of subsets met for the first time."""
        known = {(client, subset) for client, subset, _ in r.extra["stored"].tolist()}
        for client, subset in zip(r.ids, r.subsets, strict=True):
            if (client, subset) not in known:
                picked = torch.from_numpy(self.pick(r, client, subset)).to(r.extra["stored"]).unsqueeze(1)
                place = torch.tensor([[client, subset]]).to(picked).expand(len(picked), -1)
                r.extra["stored"] = torch.cat([r.extra["stored"], torch.cat([place, picked], 1)])
        self.visit(r)
        return r.mean(r.W)

    def pick(self, r: Round, client: int, subset: int) -> Ints:
        """Positions that a client stores of a subset, ascending."""
        samples, size = r.services.positions(subset), self.settings.size
        if self.settings.choice == "uniform":
            rng = r.services.generator("core_set", client, subset)
            return np.sort(rng.choice(samples, min(size, len(samples)), replace=False))
        labels = r.services.labels(samples)
        classes, counts = np.unique(labels, return_counts=True)
        (phi,) = r.services.features(r.w, [samples])
        phi = functional.normalize(phi, dim=1)
        picked = [
            samples[labels == label][herd(phi[torch.from_numpy(labels == label)], share)]
            for label, share in zip(classes, equal_shares(counts, size), strict=True)
        ]
        return np.sort(np.concatenate(picked))

    def remembered(self, r: Round, visits: list[tuple[int, int]]) -> Tensor:
        """The gradient over the stored samples."""
        client, subset, position = r.extra["stored"].cpu().numpy().T
        known = {visit: place for place, visit in enumerate(dict.fromkeys(visits))}
        sets = [position[(client == id_) & (subset == number)] for id_, number in known]
        return r.services.full_gradient(r.w, sets)[[known[visit] for visit in visits]]


def herd(phi: Tensor, count: int) -> list[int]:
    """Rows of ``phi`` [n, q] in the order of their picking: pick k minimises |mean - (phi + sum of those picked) / k|."""
    mean, total, picked = phi.mean(0), torch.zeros_like(phi[0]), list[int]()
    for k in range(1, count + 1):
        distance = torch.linalg.vector_norm(mean - (phi + total) / k, dim=1)
        distance[picked] = torch.inf
        picked.append(int(distance.argmin()))
        total = total + phi[picked[-1]]
    return picked


def equal_shares(sizes: Ints, total: int) -> Ints:
    """``total`` (or all) dealt to classes of these sizes: as equally as the sizes allow, first classes first."""
    shares = np.zeros_like(sizes)
    while rest := min(total, int(sizes.sum())) - int(shares.sum()):
        open_ = np.flatnonzero(shares < sizes)
        more = np.full(len(open_), rest // len(open_)) if rest >= len(open_) else np.arange(len(open_)) < rest
        shares[open_] = np.minimum(shares[open_] + more, sizes[open_])
    return shares
