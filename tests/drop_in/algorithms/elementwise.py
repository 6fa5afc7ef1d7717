"""A pull that differs by parameter and by client."""

from __future__ import annotations

from torch import Tensor

from fedtide.methods.algorithms.base import Algorithm, AlgorithmSettings, Local, Round


class Elementwise(Algorithm):
    """A pull [C, d] toward each client's own last model [C, d]."""

    class Settings(AlgorithmSettings):
        """Settings of the test's algorithm."""

        name: str = "elementwise"

    client = ("last",)

    def local(self, r: Round) -> Local:
        """Stronger where the last model is large."""
        return Local(pull=r.client.last.abs(), toward=r.client.last)

    def finish(self, r: Round) -> Tensor:
        """Remember the models."""
        r.client.last = r.W
        return r.average()
