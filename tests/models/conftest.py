from collections.abc import Callable
from typing import Any

import pytest
import torch

from fedtide.core import plugins
from fedtide.training.models.base import Model, Network

Build = Callable[..., Network]


@pytest.fixture
def build() -> Build:
    """Builds a network by name: ``build(name, input_shape, num_classes, vocabulary, **settings)``."""

    def make(name: str, shape: tuple[int, ...], num_classes: int, vocabulary: int = 0, **settings: Any) -> Network:
        cls = plugins.load("models", name)
        model = cls(cls.Settings(**settings))
        assert isinstance(model, Model)
        torch.manual_seed(0)
        return model.build(shape, num_classes, vocabulary)

    return make
