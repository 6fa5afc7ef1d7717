"""What the methods of continual federated learning share: how much of the past they lose, and the server's step."""

import math
from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedtide.methods.algorithms._averaging import Averaging, AveragingSettings
from fedtide.methods.algorithms.base import Ints, Round
from fedtide.settings.choices import WeightingChoice, choice_field


class ContinualSettings(AveragingSettings):
    weighting: WeightingChoice = choice_field("uniform", "how participants are weighted")
    measure_every: int = Field(
        0, ge=0, description="rounds between records of the information loss, plus the last; 0: never"
    )


class Continual(Averaging):
    """A method that approximates past objectives f_{tau,i} by F_{tau,i} (Guo, Lin and Tang 2021).

    The information loss is measured at w_t, the model sent in round t, over all rounds tau <= t and their participants i; it
    needs the data of the past, so only a simulator can measure it::

        mean_{tau, i} | grad f_{tau,i}(w_t) - grad F_{tau,i}(w_t) |                                                 (eq. 3)
    """

    settings: ContinualSettings

    def extra(self) -> dict[str, Tensor]:
        """``visits``: client and subset of every participation so far, int64 [n, 2], while the loss is measured."""
        return {"visits": torch.zeros(0, 2, dtype=torch.int64)}

    def visit(self, r: Round) -> None:
        """Remember which data this round used."""
        if self.settings.measure_every:
            visited = torch.tensor([r.ids, r.shard_ids]).T.to(r.extra["visits"])
            r.extra["visits"] = torch.cat([r.extra["visits"], visited])

    @abstractmethod
    def remembered(self, r: Round, visits: list[tuple[int, int]]) -> Tensor:
        """grad F(w_t) [n, d] of each visit, in order; NaN where F leaves an entry open."""

    def information_loss(self, r: Round) -> float:
        """In round t."""
        visits = [(client, subset) for client, subset in r.extra["visits"].tolist()]
        known = {subset: place for place, subset in enumerate(dict.fromkeys(subset for _, subset in visits))}
        true = r.services.full_gradient(r.w, [r.services.positions(subset) for subset in known])
        gap = true[[known[subset] for _, subset in visits]] - self.remembered(r, visits)
        return float(torch.linalg.vector_norm(gap.nan_to_num(0.0), dim=-1).mean())  # eq. 3

    def record(self, r: Round) -> dict[str, Tensor | float]:
        """``information_loss``, NaN in rounds without a measurement."""
        every = self.settings.measure_every
        if not every:
            return {}
        due = (r.t + 1) % every == 0 or r.t + 1 == self.problem.rounds
        return {"information_loss": self.information_loss(r) if due else math.nan}


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
