"""Everything that can be added to a gradient, different for each client."""

from __future__ import annotations

from torch import Tensor

from fedtide.methods.algorithms.base import Algorithm, AlgorithmSettings, Local, Round


class Columns(Algorithm):
    """Vector coefficients of every kind: linear, pull, scale, decay and learning rate differ by client."""

    class Settings(AlgorithmSettings):
        """Settings of the test's algorithm."""

        name: str = "columns"

    client = ("h",)

    def local(self, r: Round) -> Local:
        """Columns [C, 1] made of the clients' sizes, a memory [C, d] and a pull toward the global model [d]."""
        return Local(
            linear=r.client.h,
            pull=0.1 * r.omega,
            toward=r.w,
            scale=1 / (1 + r.omega),
            decay=0.01 * r.omega,
            lr_scale=r.mean_steps / r.steps.clamp(min=1),
        )

    def finish(self, r: Round) -> Tensor:
        """Remember the displacements."""
        r.client.h = 0.1 * (r.w - r.W)
        return r.average()
