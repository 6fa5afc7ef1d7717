"""How large a network is, without allocating it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedtide.training.engine.flat import trained
from fedtide.training.models.base import Model, Network
from fedtide.world.dataset import Dataset


@dataclass(frozen=True)
class Size:
    """Size of a network: parameters d, buffers q and constants, which are not trained."""

    network: Network
    parameters: int
    buffers: int
    constants: int


def measure(model: Model, data: Dataset) -> Size:
    """The size of the network that a model builds for a dataset, from tensors without content."""
    try:
        with torch.device("meta"), torch.random.fork_rng(devices=[]):
            network = model.build(data.input_shape, data.outputs, data.vocabulary)
    except Exception:  # something that needs values, or bad settings: build it
        with torch.random.fork_rng(devices=[]):
            network = model.build(data.input_shape, data.outputs, data.vocabulary)
    parameters = sum(value.numel() for value in trained(network).values())
    constants = sum(value.numel() for value in network.parameters()) - parameters
    buffers = sum(value.numel() for value in network.buffers() if value.is_floating_point())
    return Size(network, parameters, buffers, constants)
