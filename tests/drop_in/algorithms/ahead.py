"""A gradient ahead minus one behind, taken by the algorithm itself or left to the step."""

from __future__ import annotations

from torch import Tensor

from fedtide.methods.algorithms.base import Algorithm, AlgorithmSettings, Gradient, GradientAt, Local, Round


class Ahead(Algorithm):
    """v = g(y - 0.1 g(y)) - g(x), with a pull and a constant on top."""

    class Settings(AlgorithmSettings):
        """Settings of the test's algorithm."""

        name: str = "ahead"
        left_to_step: bool = True

    settings: Settings

    def local(self, r: Round) -> Local:
        """What is added comes on top of the direction."""
        return Local(pull=0.1, toward=r.w, linear=0.01 + 0 * r.w)

    def direction(self, grad: Gradient, W: Tensor, r: Round) -> Tensor | GradientAt:
        """The same in both ways."""
        point = W - 0.1 * grad(W)
        if self.settings.left_to_step:
            return GradientAt(point, minus=r.w)
        found = grad(point).clone()
        return found - grad(r.w)
