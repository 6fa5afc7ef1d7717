"""LDAM."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from fedtide.core.plugins import PluginSettings
from fedtide.training.models.base import Outputs
from fedtide.training.objectives.base import Objective


class Ldam(Objective):
    """Label-distribution-aware margins (Cao et al. 2019), larger for rarer classes.

    ``CE(s (z - m_y onehot(y)), y)`` with ``m_c = max_margin (n_c^(-1/4)) / max_j n_j^(-1/4)``, the maximum over classes that
    have samples; a class without samples gets ``max_margin``. The paper normalizes features and the rows of the last layer;
    here the network's own linear head is used. Evaluation scores the plain logits: the scale s is part of training only.
    """

    class Settings(PluginSettings):
        name: str = "ldam"
        max_margin: float = Field(0.5, ge=0, description="margin of the rarest class")
        scale: float = Field(30.0, gt=0, description="factor s of the logits")
        prior: Literal["local", "global"] = Field("local", description="class counts: the client's, or all clients'")

    settings: Settings

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.pooled = settings.prior == "global"

    def margins(self, counts: Tensor) -> Tensor:
        """m_c [L]."""
        some = torch.where(counts > 0, counts, torch.inf)
        rarest = some.amin(-1, keepdim=True)
        margins: Tensor = self.settings.max_margin * torch.where(counts > 0, rarest / some, 1.0) ** 0.25
        return margins

    def loss(self, outputs: Outputs, labels: Tensor, counts: Tensor | None) -> Tensor:
        """See :meth:`fedtide.training.objectives.base.Objective.loss`; without counts there are no margins."""
        z = outputs.logits
        if counts is not None:
            own = labels.unsqueeze(-1) == torch.arange(z.shape[-1], device=z.device)
            z = torch.where(own, z - self.margins(counts), z)
        scores = functional.log_softmax(self.settings.scale * z, dim=-1)
        return -scores.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
