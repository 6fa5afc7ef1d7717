"""CFL-Generative."""

from __future__ import annotations

from collections.abc import Callable

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from fedtide.algorithms._continual import ContinualSettings
from fedtide.algorithms._replay import Replay
from fedtide.algorithms.base import Ints, Round

Slope = Callable[[Tensor], Tensor]
Gradient = Callable[[Tensor, Tensor], Tensor]


class CflGenerative(Replay):
    """Clients synthesise samples of every subset they have held and train on those later (Guo, Lin and Tang 2021).

    After its local steps in its first round with a subset, a client draws ``size`` samples by Langevin dynamics in the space
    of inputs, scaled to the unit cube::

        x^0 ~ Uniform[0, 1],   x^k = x^{k-1} - eta_x grad E(x^{k-1}) + xi,   xi ~ N(0, s^2)                         (1)
        E(x) = CE(f_w(x), y) + smoothness TV(x)                                                                     (2)

    The paper defines E only as a distance to the local distribution; (2) is ours, with labels y drawn from those of the subset
    and w the client's own trained model, TV only for images. Samples stay in the cube. BatchNorm's statistics, which
    synthetic samples would spoil, are recomputed from real ones before the upload.

    References:
        Guo, Lin and Tang 2021. Towards Federated Learning on Time-Evolving Heterogeneous Data.
    """

    class Settings(ContinualSettings):
        name: str = "cfl_generative"
        size: int = Field(75, ge=0, description="synthetic samples of a subset")
        steps: int = Field(100, ge=0, description="Langevin steps")
        eta_x: float = Field(0.1, ge=0, description="size of a Langevin step")
        s: float = Field(0.005, ge=0, description="standard deviation of a step's noise")
        smoothness: float = Field(0.01, ge=0, description="weight of the total variation in the energy")

    settings: Settings

    admits = ("rules",)
    needs_classes = True

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.synthetic_per_shard = settings.size

    def pick(self, r: Round, rows: list[int]) -> list[Ints]:
        """Synthesise samples with the models of the participants in these rows."""
        keys = [(r.ids[row], r.shard_ids[row]) for row in rows]
        labels = [
            torch.from_numpy(
                self.problem.randomness.generator("generated", *key).choice(
                    r.services.labels(r.services.positions(key[1])), self.synthetic_per_shard
                )
            )
            for key in keys
        ]

        def sample(place: int, gradient: Gradient) -> Tensor:
            y, rng = (
                labels[place].to(r.w.device),
                self.problem.randomness.torch_generator("generated.samples", *keys[place]),
            )
            return self.langevin(self.problem.input_shape, lambda x: self.slope(gradient, x, y), rng, r.w)

        made = r.services.with_input_gradients(r.W[rows], _cross_entropy, sample)
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

    def slope(self, gradient: Gradient, x: Tensor, y: Tensor) -> Tensor:
        """grad E(x) [n, ...] of each sample, given the gradient of the cross-entropy: (2)."""
        slope = gradient(x, y)
        return slope.add_(variation_slope(x, self.settings.smoothness)) if x.dim() == 4 else slope

    def langevin(self, shape: tuple[int, ...], slope: Slope, rng: torch.Generator, like: Tensor) -> Tensor:
        """``size`` samples [size, *shape] in the unit cube.

        Args:
            shape: of a sample.
            slope: of the energy, at samples [size, *shape].
            rng: of start and noise, on the CPU.
            like: any tensor of their type, on their device.
        """
        s = self.settings
        x = torch.rand((self.synthetic_per_shard, *shape), generator=rng, dtype=torch.float32).to(like)
        for _ in range(s.steps):
            noise = torch.randn(x.shape, generator=rng, dtype=torch.float32).to(like)
            x.sub_(slope(x), alpha=s.eta_x).add_(noise, alpha=s.s).clamp_(0, 1)  # (1)
        return x


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(logits, labels, reduction="sum")


def variation_slope(x: Tensor, factor: float) -> Tensor:
    """Gradient of ``factor`` times the sum of absolute differences of neighbouring pixels of x [n, channels, height, width]."""
    slope = torch.zeros_like(x)
    for dim in (-2, -1):
        rise, length = x.diff(dim=dim).sgn_().mul_(factor), x.shape[dim] - 1
        slope.narrow(dim, 1, length).add_(rise)
        slope.narrow(dim, 0, length).sub_(rise)
    return slope
