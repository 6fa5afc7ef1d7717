"""Balanced softmax."""

from typing import Literal

from pydantic import Field
from torch import Tensor
from torch.nn import functional

from fedtide.core.plugins import PluginSettings
from fedtide.training.models.base import Outputs
from fedtide.training.objectives.base import Objective


class BalancedSoftmax(Objective):
    """Cross-entropy of the logits shifted by the log prior (Ren et al. 2020; PriorCE in the FedWCM paper).

    ``CE(z + log(pi + 1e-9), y)`` with ``pi_c = n_c / sum n``; logits are not shifted at inference. The prior is the client's
    own unless ``prior`` is ``global``: published results on balanced global data differ from cross-entropy, which a global
    prior could not explain. A class that the client lacks gets the offset log(1e-9) and hardly any gradient.
    """

    class Settings(PluginSettings):
        name: str = "balanced_softmax"
        prior: Literal["local", "global"] = Field("local", description="class counts: the client's, or all clients'")

    settings: Settings

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.pooled = settings.prior == "global"

    def loss(self, outputs: Outputs, labels: Tensor, counts: Tensor | None) -> Tensor:
        """See :meth:`fedtide.training.objectives.base.Objective.loss`; without counts it is cross-entropy."""
        z = outputs.logits
        if counts is not None:
            z = z + (counts / counts.sum(-1, keepdim=True) + 1e-9).log()
        return -functional.log_softmax(z, dim=-1).gather(-1, labels.unsqueeze(-1)).squeeze(-1)
