"""Synthetic datasets of a few dozen samples, float64."""

import numpy as np
import torch
from torch import Tensor

from fedtide.core.errors import SettingsError
from fedtide.training.models.base import Model
from fedtide.world.dataset import Dataset, Kind


def dataset(inputs: Tensor, labels: Tensor, classes: int, kind: Kind = "vector", vocabulary: int = 0) -> Dataset:
    """A dataset that is tested on its training samples."""
    return Dataset("tiny", kind, inputs, labels, inputs, labels, classes, digest="tiny", vocabulary=vocabulary)


def clusters() -> Dataset:
    """Three hundred samples of four features, ten classes of thirty each."""
    draw = torch.Generator().manual_seed(0)
    labels = torch.arange(300) % 10
    inputs = torch.randn(300, 4, generator=draw, dtype=torch.float64) + 0.3 * labels.unsqueeze(1)
    return dataset(inputs, labels, 10)


def images(count: int = 40, side: int = 8, channels: int = 1, classes: int = 3, seed: int = 0) -> Dataset:
    """Random images with random labels."""
    return _noise((count, channels, side, side), classes, seed, "image")


def series(count: int = 40, length: int = 6, channels: int = 2, classes: int = 3, seed: int = 0) -> Dataset:
    """Random series with random labels."""
    return _noise((count, channels, length), classes, seed, "series")


def tokens(count: int = 40, length: int = 6, vocabulary: int = 30, classes: int = 3, seed: int = 0) -> Dataset:
    """Random texts of token ids, some padding included."""
    return _noise((count, length), classes, seed, "text", vocabulary)


def _noise(shape: tuple[int, ...], classes: int, seed: int, kind: Kind, vocabulary: int = 0) -> Dataset:
    rng = np.random.default_rng(seed)
    inputs = torch.from_numpy(rng.integers(0, vocabulary, shape) if vocabulary else rng.normal(size=shape))
    return dataset(inputs, torch.from_numpy(rng.integers(0, classes, shape[0])), classes, kind, vocabulary)


def smallest(model: Model) -> Dataset:
    """The smallest of some datasets that a model takes.

    Raises:
        SettingsError: it takes none of them.
    """
    smaller = (images(side=side) for side in (8, 16, 32))
    refused = ""
    for data in (*smaller, images(side=32, channels=3), tokens(), series(), clusters()):
        try:
            model.build(data.input_shape, data.num_classes, data.vocabulary)
        except SettingsError as error:
            refused = str(error)
            continue
        return data
    raise SettingsError(f"model {model.settings.name} does not support images, texts, series or vectors: {refused}")
