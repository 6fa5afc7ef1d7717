"""MimeLite."""

from pydantic import Field
from torch import Tensor

from fedtide.methods.algorithms.base import Algorithm, AlgorithmSettings, Local, Round, Tunable


class MimeLite(Algorithm):
    """Local steps with the server's momentum, frozen during the round (Karimireddy et al. 2021).

    Clients also send the gradient of their whole data at x, whose mean is c. With ``U(z) = (1 - beta) z + beta m``::

        v = U(g(y))                                                                                                 (1)
        m+ = U(c)                                                                                                   (2)
        x+ = x + eta_g sum_k p_k (y_k - x)                                                                          (3)

    Without ``dampening`` ``U(z) = z + beta m`` as in the released code. The mean c has the weights of the models.
    """

    class Settings(AlgorithmSettings):
        name: str = "mimelite"
        beta: float = Tunable(0.9, low=0.1, high=0.99, ge=0, lt=1, description="momentum beta")
        dampening: bool = Field(True, description="U(z) = (1 - beta) z + beta m rather than z + beta m")
        server_lr: float = Tunable(1.0, low=0.1, high=1.5, gt=0, description="server step size eta_g")

    settings: Settings

    server = ("m",)
    down: tuple[str, ...] = ("w", "m")
    up = ("W", "c_k")
    admits = ("sums", "rules")
    optimizer = "sgd"

    @property
    def _fresh(self) -> float:
        """Weight of the fresh gradient z in U(z)."""
        return 1.0 - self.settings.beta if self.settings.dampening else 1.0

    def _next(self, r: Round) -> Tensor:
        """m+: (2)."""
        c = r.mean(r.services.full_gradient(r.w))
        momentum: Tensor = self._fresh * c + self.settings.beta * r.server.m
        return momentum

    def local(self, r: Round) -> Local:
        """v: (1)."""
        beta = self.settings.beta
        return Local(scale=self._fresh, linear=beta * r.server.m) if beta else Local()

    def finish(self, r: Round) -> Tensor:
        r.server.m = self._next(r)
        return r.average(self.settings.server_lr)  # (3)
