"""FedDisco."""

import torch
from torch import Tensor

from fedtide.core.plugins import PluginSettings, Tunable
from fedtide.methods.weighting.base import Weighting


class FedDisco(Weighting):
    """Samples, corrected for the discrepancy between a client's labels and uniform ones (Ye et al. 2023).

    ``q_k = max(0, r_k - a d_k + b) / sum`` with ``r_k = n_k / sum n_j`` and ``d_k = KL(labels of k || uniform)`` over all L
    classes, divided by its sum over the participants as in the released code. Where every q_k vanishes, which divides by zero
    there, a round falls back to r_k. The mean of all clients' latest models (evaluation of ``all``) is uniform, as in FedSSG's
    code. The label histogram that a client sends once is not charged.
    """

    class Settings(PluginSettings):
        name: str = "feddisco"
        a: float = Tunable(0.5, low=0.0, high=1.0, ge=0, description="weight of the discrepancy")
        b: float = Tunable(0.1, low=0.0, high=1.0, ge=0, description="constant added to every share")

    settings: Settings
    needs_classes = True

    def weights(self, n: Tensor, label_counts: Tensor) -> Tensor:
        r, p = n / n.sum(), label_counts / label_counts.sum(-1, keepdim=True)
        against_uniform = label_counts.shape[-1] * label_counts / label_counts.sum(-1, keepdim=True)
        d = torch.special.xlogy(p, against_uniform).sum(-1)
        total = d.sum()
        q = (r - self.settings.a * (d / total if total > 0 else d) + self.settings.b).clamp(min=0)
        return q / q.sum() if q.sum() > 0 else r

    def population_weights(self, n: Tensor, label_counts: Tensor) -> Tensor:
        return torch.full_like(n, 1.0 / len(n))
