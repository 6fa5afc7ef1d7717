"""How large a network and its activations are, without allocating them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedtide.engine.flat import trained
from fedtide.models.base import Model, Network
from fedtide.world.dataset import Dataset

_PER_INPUT = 64  # numbers of activations per number of input, where they cannot be measured


@dataclass(frozen=True)
class Size:
    """Size of a network: parameters d, buffers q and constants, which are not trained; what its layers give out for one sample.

    Attributes:
        activations: numbers that all layers give out, the input included.
        widest: numbers that the layer with the largest output takes and gives out.
    """

    network: Network
    parameters: int
    buffers: int
    constants: int
    activations: int
    widest: int


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
    outputs = activations(network, data)
    return Size(
        network, parameters, buffers, constants, sum(outputs), max(map(sum, zip(outputs, [0, *outputs], strict=False)))
    )


def activations(network: nn.Module, data: Dataset) -> list[int]:
    """Numbers of the input and of every layer's output for one sample, in evaluation mode."""
    sample, found = math.prod(data.input_shape), list[int]()

    def note(_module: nn.Module, _inputs: object, output: object) -> None:
        if isinstance(output, Tensor):
            found.append(output.numel())

    leaves = [part for part in network.modules() if not list(part.children())]
    hooks = [part.register_forward_hook(note) for part in leaves]
    try:
        parameter = next(network.parameters())
        dtype = torch.int64 if data.kind == "text" else parameter.dtype
        with torch.no_grad():
            network.eval()(torch.zeros(1, *data.input_shape, dtype=dtype, device=parameter.device))
    except Exception:  # the run itself says what is wrong
        found = [sample * _PER_INPUT]
    for hook in hooks:
        hook.remove()
    return [sample, *found]
