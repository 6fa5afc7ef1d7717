"""CFL-Generative."""

from collections.abc import Callable

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from fedtide.methods.algorithms._continual import ContinualSettings, Replay
from fedtide.methods.algorithms.base import Ints, Round

Slope = Callable[[Tensor], Tensor]
Gradient = Callable[[Tensor, Tensor], Tensor]


class CflGenerative(Replay):
    """Clients synthesize samples of every subset they have held and train on those later (Guo, Lin and Tang 2021).

    One round, for a client that holds one of its subsets:

    (1) It trains on this subset and on the samples stored of all other subsets (``Replay``). In its first round with a
        subset, it then synthesizes ``size`` samples by (2) to (6), in the space of inputs scaled to the unit cube.
    (2) Labels y are sampled from those of the subset.
    (3) Start: ``x^0 ~ Uniform[0, 1]``.
    (4) Gradient of the energy: ``E(x) = CE(f_w(x), y) + smoothness TV(x)``, with w the client's own trained model.
    (5) Langevin step: ``x^k = x^{k-1} - eta_x grad E(x^{k-1}) + xi``, ``xi ~ N(0, s^2)``, clipped to the cube.
    (6) After ``steps`` of (4) and (5), the client stores x and y for later rounds.
    (7) It recomputes the BatchNorm statistics, which synthetic samples would distort, from its real samples, and uploads.
    (8) The server averages the models as in FedAvg.

    The paper defines E only as a distance to the local distribution; (2), (4) and the clipping in (5) are ours,
    and TV is only for images.

    References:
        Guo, Lin and Tang 2021. Towards Federated Learning on Time-Evolving Heterogeneous Data.
    """

    class Settings(ContinualSettings):
        name: str = "cfl_generative"
        size: int = Field(75, ge=0, description="synthetic samples per subset")
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
        """Synthesize samples, (2) to (6), with the models of the participants in these rows."""
        keys = [(r.ids[row], r.shard_ids[row]) for row in rows]
        labels = [  # (2)
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
            return self.langevin(self.problem.input_shape, lambda x: self.slope(gradient, x, y), rng, r.w)  # (3) to (5)

        made = r.services.with_input_gradients(r.W[rows], rows, _cross_entropy, sample)  # w of (4): r.W
        return [r.services.add_samples(x, y) for x, y in zip(made, labels, strict=True)]  # (6)

    def finish(self, r: Round) -> Tensor:
        """Store samples, (2) to (6), recompute BatchNorm's statistics (7), and average (8)."""
        w = super().finish(r)  # (2) to (6), (8)
        r.services.renew_statistics(r.W)  # (7); the server averages statistics after this
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
        """grad E(x) [n, ...] of each sample, given the function that computes that of the cross-entropy: (4)."""
        slope = gradient(x, y)  # (4): CE
        return slope.add_(variation_slope(x, self.settings.smoothness)) if x.dim() == 4 else slope  # (4): TV

    def langevin(self, shape: tuple[int, ...], slope: Slope, rng: torch.Generator, like: Tensor) -> Tensor:
        """(3) to (5): ``size`` samples [size, *shape] in the unit cube.

        Args:
            slope: of the energy, at samples [size, *shape]. rng: of start and noise, on the CPU. like: a tensor of their type.
        """
        s = self.settings
        x = torch.rand((self.synthetic_per_shard, *shape), generator=rng, dtype=torch.float32).to(like)  # (3)
        for _ in range(s.steps):
            noise = torch.randn(x.shape, generator=rng, dtype=torch.float32).to(like)  # (5): xi / s
            x.sub_(slope(x), alpha=s.eta_x).add_(noise, alpha=s.s).clamp_(0, 1)  # (4), (5)
        return x


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(logits, labels, reduction="sum")


def variation_slope(x: Tensor, factor: float) -> Tensor:
    """(4): gradient of ``factor`` times the total variation of x [n, channels, height, width].

    The total variation is the sum of absolute differences of neighboring pixels.
    """
    slope = torch.zeros_like(x)
    for dim in (-2, -1):
        rise, length = x.diff(dim=dim).sgn_().mul_(factor), x.shape[dim] - 1
        slope.narrow(dim, 1, length).add_(rise)
        slope.narrow(dim, 0, length).sub_(rise)
    return slope
