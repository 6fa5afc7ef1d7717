"""The workloads' networks in plain PyTorch, for the contenders that train PyTorch modules."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn


def network(name: str, parameters: Sequence[NDArray[np.float32]]) -> nn.Sequential:
    """The network with these parameters: ``softmax_regression``, ``mlp`` or ``cnn_5x5``."""
    layers: dict[str, list[nn.Module]] = {
        "softmax_regression": [nn.Flatten(), nn.Linear(784, 10)],
        "mlp": [nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10)],
        "cnn_5x5": [
            *(nn.Conv2d(3, 64, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(64, 64, 5), nn.MaxPool2d(2), nn.ReLU()),
            *(nn.Flatten(), nn.Linear(1600, 384), nn.ReLU(), nn.Linear(384, 192), nn.ReLU(), nn.Linear(192, 10)),
        ],
    }
    model = nn.Sequential(*layers[name])
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), parameters, strict=True):
            parameter.copy_(torch.from_numpy(value))
    return model


def parameters_of(model: nn.Module) -> list[NDArray[np.float32]]:
    """Copies of the parameters, in order."""
    return [parameter.detach().cpu().numpy().copy() for parameter in model.parameters()]
