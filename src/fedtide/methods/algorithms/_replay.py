"""What methods that store and replay samples share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedtide.methods.algorithms._continual import Continual
from fedtide.methods.algorithms.base import Ints, Round


class Replay(Continual):
    """Clients store samples in their first round with a subset, and train on them whenever they hold another one.

    They train on the union of the subset they hold and the samples stored of all others, so a stored subset of m samples has
    the weight ``m / (N_t + sum m)``. A sample of several overlapping subsets is trained on once. The more a client has stored,
    the more batches an epoch has: fix ``local.steps`` when comparing.
    """

    def extra(self) -> dict[str, Tensor]:
        """``stored``: client, subset and position of each stored sample, int64 [n, 3], in the order of the first visits."""
        return {**super().extra(), "stored": torch.zeros(0, 3, dtype=torch.int64)}

    def training_samples(
        self, ids: Sequence[int], shard_ids: Sequence[int], shards: Sequence[Ints], extra: dict[str, Tensor]
    ) -> Sequence[Ints]:
        """Own samples, then those stored of other subsets."""
        client, subset, position = extra["stored"].cpu().numpy().T
        found = []
        for id_, here, mine in zip(ids, shard_ids, shards, strict=True):
            past = position[(client == id_) & (subset != here)]
            _, first = np.unique(past, return_index=True)
            past = past[np.sort(first)]
            found.append(np.concatenate([mine, past[~np.isin(past, mine)]]))
        return found

    def forget(self, extra: dict[str, Tensor], departed: Tensor) -> None:
        """Remove their stored samples; the information loss still counts their past objectives, now as forgotten."""
        stored = extra["stored"]
        extra["stored"] = stored[~torch.isin(stored[:, 0], departed.to(stored))]

    @abstractmethod
    def pick(self, r: Round, rows: list[int]) -> list[Ints]:
        """Positions that the participants in these rows store of the subsets they hold for the first time, ascending."""

    def finish(self, r: Round) -> Tensor:
        """Store samples of subsets held for the first time."""
        known = {(client, subset) for client, subset, _ in r.extra["stored"].tolist()}
        places = list(zip(r.ids, r.shard_ids, strict=True))
        new = [row for row, place in enumerate(places) if place not in known]
        for row, picked in zip(new, self.pick(r, new) if new else [], strict=True):
            positions = torch.from_numpy(picked).to(r.extra["stored"]).unsqueeze(1)
            place = torch.tensor([places[row]]).to(positions).expand(len(positions), -1)
            r.extra["stored"] = torch.cat([r.extra["stored"], torch.cat([place, positions], 1)])
        self.visit(r)
        return super().finish(r)

    def remembered(self, r: Round, visits: list[tuple[int, int]]) -> Tensor:
        """The gradient over the stored samples."""
        client, subset, position = r.extra["stored"].cpu().numpy().T
        known = {visit: place for place, visit in enumerate(dict.fromkeys(visits))}
        sets = [position[(client == id_) & (subset == number)] for id_, number in known]
        return r.services.full_gradient(r.w, sets)[[known[visit] for visit in visits]]
