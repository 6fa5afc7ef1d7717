"""Updates that pass one link, without a run."""

from typing import Any

import torch
from torch import Tensor

from fedtide.core import plugins
from fedtide.methods.algorithms.base import Vectors
from fedtide.methods.uplink.base import Link, Sending
from fedtide.training.engine.flat import Layout


class Passing:
    """A link on the way of updates of ``size`` numbers from some clients, who all take part in every round.

    Attributes:
        memory, extra: as a run keeps them.
    """

    def __init__(self, name: str, clients: int, size: int, **values: Any) -> None:
        plugin: Any = plugins.load("uplink", name)
        self.link: Link = plugin(plugin.Settings.model_validate({"name": name, **values}))
        self.link.bind([self.link], Layout(torch.nn.Linear(size - 1, 1)))
        self.clients = clients
        self.memory = {
            key: torch.zeros(clients, self.link.width(key, size), dtype=torch.float64) for key in self.link.memory
        }
        self.extra = self.link.extra(size)
        self.t = 0

    def __call__(self, updates: Tensor) -> tuple[Tensor, dict[str, Tensor | float]]:
        """What arrives of updates [C, d] of the next round, and what is recorded."""
        D, ids = updates.clone(), list(range(self.clients))
        name = self.link.settings.name
        sending = Sending(
            t=self.t,
            participants=self.clients,
            ids=ids,
            numbers=ids,
            memory=Vectors(self.memory),
            extra=self.extra,
            extras={name: self.extra},
            seed=0,
            purpose=f"uplink.{name}",
            keys=(self.t,),
        )
        columns = self.link.apply(D, sending)
        self.t += 1
        return D, self.link.finish(columns, sending)


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Normal numbers."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def length(rows: Tensor) -> Tensor:
    """Norms [C]."""
    return torch.linalg.vector_norm(rows, dim=1)
