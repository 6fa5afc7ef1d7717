"""FedSMOO."""

import torch
from torch import Tensor

from fedtide.methods.algorithms._dual import Dual
from fedtide.methods.algorithms.base import Gradient, GradientAt, Round
from fedtide.methods.algorithms.fedsam import radius


class FedSmoo(Dual):
    """Dynamic regularization of model and perturbation, which agree on a global one s (Sun et al. 2023).

    FedDyn with one coefficient for all clients around the gradient at a perturbed point; mu_k is the perturbation's dual::

        e = rho t / |t|,   t = g(y) - mu_k - s                                                                      (1)
        mu_k+ = mu_k + e - s          in every local step                                                           (2)
        v = g(y + e)                                                                                                (3)
        s+ = rho m / |m|,   m = mean_S mu_k                                                                         (4)

    (4) is the released code's; the paper adds a small term in s.
    """

    server = (*Dual.server, "s")
    client = ("h", "mu")
    down = ("w", "s")
    up = ("W", "mu")
    apart = ("mu",)

    def gradients_in(self, step: int) -> int:
        return 2

    def direction(self, grad: Gradient, W: Tensor, r: Round) -> GradientAt:
        mu, s = r.client.mu, r.server.s
        t = grad(W).sub_(mu).sub_(s)
        scale = radius(t, self.settings.rho)  # (1): e = scale t
        mu.addcmul_(t, scale).sub_(s)  # (2)
        return GradientAt(torch.addcmul(W, t, scale, out=t))  # (3)

    def finish(self, r: Round) -> Tensor:
        m = r.total(r.client.mu) / len(r.ids)
        r.server.s = m * radius(m, self.settings.rho)  # (4)
        return super().finish(r)
