"""Mime."""

from torch import Tensor

from fedtide.methods.algorithms.base import Gradient, GradientAt, Local, Round
from fedtide.methods.algorithms.mimelite import MimeLite


class Mime(MimeLite):
    """MimeLite with variance-reduced local gradients (Karimireddy et al. 2021).

    In MimeLite's place of v, with both gradients on the same batch::

        v = U(g(y) - g(x) + c)                                                                                      (1)

    U is affine and ``U(c) = m+``, so the constant part of v is the next momentum. c is known before local training: two
    exchanges with the same clients. ``beta = 0`` is FedAvg with SVRG's correction.
    """

    class Settings(MimeLite.Settings):
        name: str = "mime"

    settings: Settings

    down = ("w", "m", "c")

    def local(self, r: Round) -> Local:
        """m+, before the local steps, which it is a part of: (1)."""
        r.server.m = self._next(r)
        return Local(scale=self._fresh, linear=r.server.m)

    def gradients_in(self, step: int) -> int:
        return 2

    def direction(self, grad: Gradient, W: Tensor, r: Round) -> GradientAt:
        """g(y) - g(x)."""
        return GradientAt(W, minus=r.w)

    def finish(self, r: Round) -> Tensor:
        return r.average(self.settings.server_lr)
