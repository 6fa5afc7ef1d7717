"""The generator of FedGen: features of the last hidden layer from noise and a label."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedtide.training.engine.flat import Layout, flatten


class Generator:
    """G(eps, y): Linear(r + L -> H), BatchNorm, ReLU, Linear(H -> q); (r + L) H + 3 H + (H + 1) q parameters.

    Args:
        noise: r, entries of eps. hidden: H. classes: L. width: q, width of the features.
    """

    def __init__(self, noise: int, hidden: int, classes: int, width: int) -> None:
        self.noise, self.classes = noise, classes
        with torch.random.fork_rng(devices=[]):  # values are never used: :meth:`start` draws them
            self._network = nn.Sequential(
                nn.Linear(noise + classes, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, width)
            ).float()
        self._layout = Layout(self._network)
        self.size = self._layout.size

    def start(self, draws: torch.Generator) -> tuple[Tensor, Tensor]:
        """Parameters [G] and statistics [2 H] of a generator with the library's default weights, float64."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(draws.initial_seed())
            for layer in self._network:
                if isinstance(layer, nn.Linear):
                    layer.reset_parameters()
        return flatten(self._network, torch.float64, torch.device("cpu"))

    def train(self, g: Tensor, statistics: Tensor, eps: Tensor, labels: Tensor) -> Tensor:
        """Features [B, q] for eps [B, r] and labels [B] by the statistics of the batch; ``statistics`` are updated."""
        named = self._layout.named(g, statistics)
        first = functional.linear(_inputs(eps, labels, self.classes), named["0.weight"], named["0.bias"])
        running, affine = (named["1.running_mean"], named["1.running_var"]), (named["1.weight"], named["1.bias"])
        normal = functional.batch_norm(first, *running, *affine, training=True)
        return functional.linear(torch.relu(normal), named["3.weight"], named["3.bias"])

    def folded(self, g: Tensor, statistics: Tensor) -> dict[str, Tensor]:
        """The same in evaluation mode as two affine maps, the normalization folded into the first."""
        named = self._layout.named(g, statistics)
        scale = named["1.weight"] / (named["1.running_var"] + self._network[1].eps).sqrt()  # type: ignore[operator]
        return {
            "in": named["0.weight"] * scale.unsqueeze(1),
            "shift": (named["0.bias"] - named["1.running_mean"]) * scale + named["1.bias"],
            "out": named["3.weight"].clone(),
            "bias": named["3.bias"].clone(),
        }


def imagine(maps: dict[str, Tensor], eps: Tensor, labels: Tensor) -> Tensor:
    """Features [B, q] of a folded generator for eps [B, r] and labels [B]."""
    inputs = _inputs(eps, labels, maps["in"].shape[-1] - eps.shape[-1])
    return torch.relu(inputs @ maps["in"].mT + maps["shift"]) @ maps["out"].mT + maps["bias"]


def _inputs(eps: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Noise [B, r] and labels [B], one-hot, side by side."""
    known = labels.unsqueeze(-1) == torch.arange(classes, device=labels.device)  # functional.one_hot cannot be traced
    return torch.cat([eps, known.to(eps.dtype)], -1)
