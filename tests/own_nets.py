"""Networks of a user, for tests of the model ``module``; nothing here knows of fedtide."""

from types import SimpleNamespace
from typing import Any

import lightning as L
import torch
from torch import Tensor, nn
from torch.nn import functional


class Attentive(nn.Module):
    """Normalization, attention, dropout and a buffer of integers; rows of an image are the tokens."""

    def __init__(self, num_classes: int, width: int = 4) -> None:
        super().__init__()
        self.embed, self.norm = nn.LazyLinear(width), nn.LayerNorm(width)
        self.register_buffer("order", torch.arange(width).flip(0))
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.group, self.drop = nn.GroupNorm(2, width), nn.Dropout(0.5)
        self.fc = nn.Linear(width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.norm(self.embed(images.flatten(1, 2)))[:, :, self.order]
        mixed, _ = self.attention(tokens, tokens, tokens, need_weights=False)
        return self.fc(self.drop(self.group(self.drop(mixed).mean(1))))


class Plain(nn.Module):
    """A convolution with a norm, and a last layer for ten classes, whatever the data have."""

    def __init__(self, norm: str = "BatchNorm2d", **settings: Any) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3), getattr(nn, norm)(4, **settings), nn.ReLU())
        self.classifier = nn.Linear(4, 10)

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(self.body(images).mean((2, 3)))


class Masked(Plain):
    """Looks at a part of an image; a factor is not stored."""

    def __init__(self, norm: str = "BatchNorm2d", **settings: Any) -> None:
        super().__init__(norm, **settings)
        self.register_buffer("mask", torch.ones(8, 8).tril())
        self.register_buffer("scale", torch.full((), 0.5), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images * self.mask * self.scale)


class Scaled(Plain):
    """Looks at its last layer, so that it cannot be cut there."""

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(self.body(images).mean((2, 3)) * (self.classifier.in_features / 4))


class Holder(Plain):
    """Returns more than logits: a dictionary, an object, or what ``held`` says."""

    def __init__(self, held: str, **settings: Any) -> None:
        super().__init__(**settings)
        self.held = held

    def forward(self, images: Tensor) -> Any:
        logits = super().forward(images)
        return {
            "dict": {"loss": None, "logits": logits},
            "object": SimpleNamespace(logits=logits, states=None),
            "scores": {"scores": logits},
            "tuple": (logits,),
        }[self.held]


class Odd(Plain):
    """Does what cannot be trained: ``what`` says what."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.noise = nn.AlphaDropout(0.5)

    def forward(self, images: Tensor) -> Any:
        features = self.body(images).mean((2, 3))
        if self.what == "draw" and self.training:
            features = features + torch.randn_like(features)
        if self.what == "drop":
            features = self.noise(features)
        if self.what == "count" and self.training:
            self.calls += 1
        if self.what == "weight":
            return functional.linear(features, self.classifier.weight, self.classifier.bias)
        if self.what == "branch" and features.sum() > 0:
            features = -features
        logits = self.classifier(features)
        return (logits, features) if self.what == "tuple" and self.training else logits


def squashed(num_classes: int) -> nn.Module:
    """A module whose last layer is followed by something else."""
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(6), nn.Tanh(), nn.Linear(6, num_classes), nn.LogSoftmax(-1))


class Lit(L.LightningModule):
    """A LightningModule around a network."""

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Flatten(), nn.LazyLinear(6), nn.ReLU(), nn.Linear(6, n_classes))

    def forward(self, images: Tensor) -> Tensor:
        return self.net(images)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        raise AssertionError("not used")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        raise AssertionError("not used")


class Pyramid(nn.Sequential):
    """Logits for every pixel."""

    def __init__(self) -> None:
        super().__init__(nn.Conv2d(1, 5, 3))
