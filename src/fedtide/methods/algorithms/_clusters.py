"""Several global models, each averaged over the clients that trained it."""

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedtide.core.array_types import Ints
from fedtide.methods.algorithms.base import Round, Served, ServedTo

Serve = Literal["choose", "last"]


def chosen(models: Tensor, numbers: Ints) -> Tensor:
    """Some of the models [k, d], by number."""
    return models[torch.from_numpy(numbers).to(models.device)]


def averaged(r: Round, models: Tensor, identity: Ints, server_lr: float = 1.0) -> Tensor:
    """``M_j + eta_g (mean of the local models that started from M_j - M_j)`` [k, d]; unchanged without participants.

    Args:
        models: [k, d]. identity: int64 [C], the model that each participant trained.
    """
    after = models.clone()
    for number in np.unique(identity).tolist():
        mine = torch.from_numpy(identity == number).to(r.W.device)
        if mine.all():
            mean = r.average()
        else:
            p = r.weights[mine]
            mean = (p / p.sum() * r.W[mine]).sum(0)
        after[number] = mean if server_lr == 1 else (1 - server_lr) * models[number] + server_lr * mean
    return after


def served(s: ServedTo, models: Tensor, numbers: Ints, serve: Serve) -> Served:
    """The models that clients use, the same for clusters of any kind.

    Args:
        models: [k, d], those in use; ``numbers``: int64 [n], the one that each client was last assigned to, -1 if never.
        serve: last: that one; choose: the one with the least loss on the client's own training samples, as for a client that
            was never asked. One without samples is served the global model.
    """
    if serve == "last" and (numbers >= 0).all():
        return Served(models, numbers)
    losses = s.losses(models).cpu()
    best = torch.where(losses.isfinite().any(1), losses.argmin(1), len(models)).numpy()
    found = np.where(numbers >= 0, numbers, best) if serve == "last" else best
    return Served(torch.cat([models, s.w[None]]) if (found == len(models)).any() else models, found)


def main_concept(shares: Tensor) -> Ints:
    """The concept of most samples of each client [n, concepts], of equal shares the later one; int64 [n]."""
    last = shares.shape[1] - 1
    return np.asarray(last - shares.flip(1).argmax(1).cpu().numpy(), dtype=np.int64)
