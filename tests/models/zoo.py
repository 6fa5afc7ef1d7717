"""Small networks as users write them, for ``test_zoo.py``; nothing here knows of fedtide. Samples have eight features."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

FEATURES, HIDDEN = 8, 6


class Plain(nn.Module):
    """Two linear layers; the others change a part of it."""

    def __init__(self, num_classes: int = 3) -> None:
        super().__init__()
        self.a, self.fc = nn.Linear(FEATURES, HIDDEN), nn.Linear(HIDDEN, num_classes)
        self.more()

    def more(self) -> None:
        """Further parameters."""

    def middle(self, h: Tensor) -> Tensor:
        return h

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.middle(torch.relu(self.a(x))))


# Something behind the last linear layer that begins as the identity.


class Scale(Plain):
    def more(self) -> None:
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.scale


class ReZero(Plain):
    def more(self) -> None:
        self.skip, self.gate = nn.Linear(FEATURES, 3), nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        return self.gate * self.skip(x) + super().forward(x)


class InPlace(Plain):
    def more(self) -> None:
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).mul_(self.scale)


class InTraining(Plain):
    def forward(self, x: Tensor) -> Tensor:
        logits = super().forward(x)
        return logits * 2 if self.training else logits


class Twice(Plain):
    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.a(x))
        return self.fc(h + 0 * self.fc(h).sum())


class Temperature(Plain):
    """A parameter without dimensions."""

    def more(self) -> None:
        self.logit_scale = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.logit_scale.exp()


# Parameters under several names, or computed from others.


class Tied(nn.Module):
    """A decoder with the weights of the encoder."""

    def __init__(self, num_classes: int = 3) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, FEATURES)
        self.fc = nn.Linear(FEATURES, num_classes)
        self.b.weight = self.a.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.tanh(self.b(torch.tanh(self.a(x)))))


class TiedHead(nn.Module):
    """The last layer has the weights of the first."""

    def __init__(self, num_classes: int = 3) -> None:
        super().__init__()
        self.a, self.fc = nn.Linear(FEATURES, num_classes), nn.Linear(FEATURES, num_classes)
        self.fc.weight = self.a.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.tanh(self.a(x) @ self.a.weight))


class WeightNorm(Plain):
    def more(self) -> None:
        self.b = nn.utils.parametrizations.weight_norm(nn.Linear(HIDDEN, HIDDEN))

    def middle(self, h: Tensor) -> Tensor:
        return torch.tanh(self.b(h))


class SpectralNorm(WeightNorm):
    def more(self) -> None:
        self.b = nn.utils.parametrizations.spectral_norm(nn.Linear(HIDDEN, HIDDEN))


class Fourier(nn.Module):
    """Complex weights."""

    def __init__(self, num_classes: int = 3) -> None:
        super().__init__()
        self.w, self.fc = nn.Parameter(torch.ones(5, dtype=torch.cfloat)), nn.Linear(FEATURES, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.tanh(torch.fft.irfft(torch.fft.rfft(x) * self.w, n=FEATURES)))


# What a forward should not do.


class WritesInputs(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.sub_(0.5).div_(2.0))


class ToList(Plain):
    def middle(self, h: Tensor) -> Tensor:
        return h * h.sum().tolist()


class Unique(Plain):
    def middle(self, h: Tensor) -> Tensor:
        return h * len(torch.unique(h.sign()))


class NumpyDraw(Plain):
    def middle(self, h: Tensor) -> Tensor:
        return h * np.random.rand() if self.training else h  # noqa: NPY002


class Counter(Plain):
    def more(self) -> None:
        self.calls = 0

    def middle(self, h: Tensor) -> Tensor:
        self.calls += 1
        return h / self.calls


class Reassigned(Plain):
    """A running mean in a buffer that forward replaces."""

    def more(self) -> None:
        self.register_buffer("mean", torch.zeros(HIDDEN))

    def middle(self, h: Tensor) -> Tensor:
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * h.detach().mean(0)
        return h - self.mean


# Usual layers.


class Undefined(Plain):
    """An attribute that is not equal to itself, and does not change."""

    def more(self) -> None:
        self.nothing = float("nan")


class Checkpointed(Plain):
    def more(self) -> None:
        self.b = nn.Linear(HIDDEN, HIDDEN)

    def middle(self, h: Tensor) -> Tensor:
        return checkpoint(lambda v: torch.tanh(self.b(v)), h, use_reentrant=False)


class BatchNorm(Plain):
    def more(self) -> None:
        self.b = nn.BatchNorm1d(HIDDEN)

    def middle(self, h: Tensor) -> Tensor:
        return self.b(h)


class Tables(Plain):
    """Constant tables in floating buffers, one of which is not stored."""

    def more(self) -> None:
        self.register_buffer("table", torch.linspace(0, 1, HIDDEN))
        self.register_buffer("factor", torch.full((), 2.0), persistent=False)

    def middle(self, h: Tensor) -> Tensor:
        return h * self.factor + self.table


class RunningMean(Tables):
    """A statistic beside the tables, in the same layer."""

    stored = True

    def more(self) -> None:
        super().more()
        self.register_buffer("mean", torch.zeros(HIDDEN), persistent=self.stored)

    def middle(self, h: Tensor) -> Tensor:
        if self.training:
            self.mean.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)
        return super().middle(h) - self.mean


class LostMean(RunningMean):
    stored = False


class Sequence(nn.Module):
    """Layers on the features as a sequence of four steps; sub-classes say which."""

    def __init__(self, num_classes: int = 3) -> None:
        super().__init__()
        self.layer, self.fc = self.made(), nn.Linear(HIDDEN, num_classes)

    def made(self) -> nn.Module:
        return nn.GRU(2, HIDDEN, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.layer(x.view(-1, 4, 2))[0][:, -1])


class Lstm(Sequence):
    def made(self) -> nn.Module:
        return nn.LSTM(2, HIDDEN, batch_first=True, num_layers=2)


class Transformer(Sequence):
    def made(self) -> nn.Module:
        self.embed = nn.Linear(2, HIDDEN)
        return nn.TransformerEncoderLayer(HIDDEN, 2, 8, 0.0, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.layer(self.embed(x.view(-1, 4, 2))).mean(1))


class Bag(nn.Module):
    """Embeddings of the rounded features."""

    sparse = False

    def __init__(self, num_classes: int = 3) -> None:
        super().__init__()
        self.bag, self.fc = nn.EmbeddingBag(5, HIDDEN, sparse=self.sparse), nn.Linear(HIDDEN, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.tanh(self.bag(x.round().long().clamp(-2, 2) + 2)))
