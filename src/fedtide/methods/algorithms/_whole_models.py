"""What methods share whose clients keep whole models of their own."""

import numpy as np
import torch

from fedtide.core.errors import SettingsError
from fedtide.methods.algorithms.base import Algorithm, Problem, Served, ServedTo


class WholeModels(Algorithm):
    """Clients that keep a model [d] of their own; running statistics of networks are those of the global model."""

    models = ("global", "personal")

    def bind(self, problem: Problem) -> None:
        """Refuse networks with running statistics: those of the global model are of another one than a client's."""
        if problem.layout.buffer_size:
            raise SettingsError(
                f"algorithm {self.settings.name} keeps a full model per client, but BatchNorm statistics only for "
                "the global model; use a model without BatchNorm, or model.norm: group"
            )
        super().bind(problem)

    def served(self, s: ServedTo) -> Served:
        """Each client's own model, which is the first of its vectors; the global one for a client never seen."""
        return Served(torch.where(s.seen > 0, getattr(s.client, self.client[0]), s.w), np.arange(len(s.ids)))
