"""FedSMOO."""

from __future__ import annotations

import torch
from torch import Tensor

from fedtide.algorithms._dual import Dual, DualSettings
from fedtide.algorithms._sharpness import radius
from fedtide.algorithms.base import Gradient, GradientAt, Round


class FedSmoo(Dual):
    """Dynamic regularisation of model and perturbation, which agree on a global one s (Sun et al. 2023).

    Every local step takes ``e = rho t / |t|``, ``t = g(y) - mu_k - s``, sets ``mu_k+ = mu_k + e - s`` and follows
    ``v = g(y + e) + a (y - x + h_k)``; h_k and the server's x are FedSpeed's (FedDyn's). The server's ``s = rho m / |m|`` is
    along the participants' plain mean m of mu_k, as in the released code; the paper adds a small term in s.
    """

    class Settings(DualSettings):
        name: str = "fedsmoo"

    settings: Settings

    server = (*Dual.server, "s")
    client = ("h", "mu")
    down = ("w", "s")
    up = ("W", "mu")

    def direction(self, grad: Gradient, W: Tensor, r: Round) -> GradientAt:
        """g(y + e), with mu_k advanced."""
        mu, s = r.client.mu, r.server.s
        t = grad(W).sub_(mu).sub_(s)
        scale = radius(t, self.settings.rho)
        mu.addcmul_(t, scale).sub_(s)
        return GradientAt(torch.addcmul(W, t, scale, out=t))

    def finish(self, r: Round) -> Tensor:
        """s+ and FedSpeed's x+."""
        m = r.total(r.client.mu) / len(r.ids)
        r.server.s = m * radius(m, self.settings.rho)
        return super().finish(r)
