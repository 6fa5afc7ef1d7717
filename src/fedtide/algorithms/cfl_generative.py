"""CFL-Generative."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from fedtide.algorithms._continual import ContinualSettings
from fedtide.algorithms._replay import Replay
from fedtide.algorithms.base import Ints, Round

Energy = Callable[[Tensor], Tensor]


class CflGenerative(Replay):
    """Clients synthesise samples of every subset they have held and train on those later (Guo, Lin and Tang 2021).

    After its local steps in its first round with a subset, a client draws ``size`` samples by Langevin dynamics in the space
    of inputs, scaled to the unit cube::

        x^0 ~ Uniform[0, 1],   x^k = x^{k-1} - eta_x grad E(x^{k-1}) + xi,   xi ~ N(0, s^2)

    The paper defines E only as a distance to the local distribution. Here it is
    ``CE(f_w(x), y) + smoothness TV(x)`` with labels y drawn from those of the subset and w the client's own trained model,
    TV only for images; samples are kept in the cube. BatchNorm's statistics, which synthetic samples would spoil, are
    recomputed from real ones before the upload.
    """

    class Settings(ContinualSettings):
        """Settings of CFL-Generative."""

        name: str = "cfl_generative"
        size: int = Field(75, ge=0, description="synthetic samples of a subset")
        steps: int = Field(100, ge=0, description="Langevin steps")
        eta_x: float = Field(0.1, ge=0, description="size of a Langevin step")
        s: float = Field(0.005, ge=0, description="standard deviation of a step's noise")
        smoothness: float = Field(0.01, ge=0, description="weight of the total variation in the energy")

    settings: Settings
    needs_classes = True

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.synthetic_per_shard = settings.size

    def pick(self, r: Round, rows: list[int]) -> list[Ints]:
        """Synthesise samples with the models of the participants in these rows."""
        draws = [r.randomness.generator("generated", r.ids[row], r.shard_ids[row]) for row in rows]
        labels = [
            torch.from_numpy(
                rng.choice(r.services.labels(r.services.positions(r.shard_ids[row])), self.synthetic_per_shard)
            )
            for rng, row in zip(draws, rows, strict=True)
        ]

        def sample(place: int, logits: Callable[[Tensor], Tensor]) -> Tensor:
            y = labels[place].to(r.w.device)
            return self.langevin(self.problem.input_shape, lambda x: self.energy(logits(x), x, y), draws[place], r.w)

        made = r.services.with_models(r.W[rows], sample)
        return [r.services.add_samples(x, y) for x, y in zip(made, labels, strict=True)]

    def finish(self, r: Round) -> Tensor:
        """Store samples, then recompute BatchNorm's statistics."""
        w = super().finish(r)
        r.services.renew_statistics(r.W)
        return w

    def forget(self, extra: dict[str, Tensor], departed: Tensor) -> None:
        """Remove their synthetic samples; the others move up, so that there is room if a device returns."""
        before = extra["stored"]
        super().forget(extra, departed)
        if len(after := extra["stored"]) == len(before):
            return
        kept = ~torch.isin(before[:, 0], departed.to(before))
        after[:, 2] = before[: len(after), 2]  # all synthetic samples are stored, in the order of their positions
        for name in ("synthetic_inputs", "synthetic_labels"):
            extra[name] = extra[name][kept.to(extra[name].device)]

    def energy(self, logits: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """E of each sample, summed: []."""
        energy = functional.cross_entropy(logits, y, reduction="sum")
        return energy + self.settings.smoothness * total_variation(x) if x.dim() == 4 else energy

    def langevin(self, shape: tuple[int, ...], energy: Energy, rng: np.random.Generator, like: Tensor) -> Tensor:
        """``size`` samples [size, *shape] in the unit cube.

        Args:
            shape: of a sample.
            energy: of samples [size, *shape], summed over them.
            rng: of start and noise.
            like: any tensor of their type, on their device.
        """
        s = self.settings
        x = torch.from_numpy(rng.random((self.synthetic_per_shard, *shape), dtype=np.float32)).to(like)
        for _ in range(s.steps):
            x.requires_grad_()
            (slope,) = torch.autograd.grad(energy(x), x)
            noise = torch.from_numpy(rng.standard_normal(x.shape, dtype=np.float32)).to(like)
            x = (x.detach() - s.eta_x * slope + s.s * noise).clamp(0, 1)
        return x


def total_variation(x: Tensor) -> Tensor:
    """Sum of the absolute differences of neighbouring pixels of images [n, channels, height, width]."""
    return x.diff(dim=-1).abs().sum() + x.diff(dim=-2).abs().sum()
