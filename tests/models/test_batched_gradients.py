"""Every network as a function of its parameters, for many clients at once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from fedtide.training.models.base import Network

CLIENTS, BATCH, CLASSES, TOKENS = 2, 2, 3, 11

NETWORKS = [
    ("softmax_regression", (1, 4, 4), {}),
    ("mlp", (1, 4, 4), {"widths": (5, 4)}),
    ("lenet", (1, 16, 16), {}),
    ("lenet", (1, 16, 16), {"norm": "none"}),
    ("cnn_5x5", (1, 16, 16), {}),
    ("cnn_svhn", (1, 8, 8), {}),
    ("resnet18", (1, 8, 8), {"projection": True}),
    # BatchNorm over two single pixels is too ill-conditioned to compare: 16 pixels leave four in the last stage.
    ("resnet18", (1, 16, 16), {"norm": "batch", "stem": "cifar"}),
    ("preact_resnet18", (1, 8, 8), {}),
    ("embedding_bag", (6,), {"size": 5}),
    ("cnn_1d", (2, 6), {"widths": (3, 4)}),
]


def clients(network: Network, shape: tuple[int, ...]) -> tuple[dict[str, Tensor], dict[str, Tensor], Tensor, Tensor]:
    """Different parameters, buffers, inputs and labels for each client."""
    draw = torch.Generator().manual_seed(2)

    def stacked(value: Tensor) -> Tensor:
        rows = torch.stack([value.detach()] * CLIENTS)
        if not rows.is_floating_point():
            return rows + torch.arange(CLIENTS).view(-1, *[1] * value.dim())
        return rows * (1 + 0.1 * torch.rand(rows.shape, generator=draw, dtype=rows.dtype))

    parameters = {name: stacked(value) for name, value in network.named_parameters()}
    buffers = {name: stacked(value) for name, value in network.named_buffers()}
    if len(shape) == 1:
        inputs = torch.randint(0, TOKENS, (CLIENTS, BATCH, *shape), generator=draw)
    else:
        inputs = torch.randn(CLIENTS, BATCH, *shape, generator=draw, dtype=torch.float64)
    labels = torch.randint(0, CLASSES, (CLIENTS, BATCH), generator=draw)
    return parameters, buffers, inputs, labels


@pytest.mark.parametrize(("name", "shape", "settings"), NETWORKS)
def test_vmap_of_gradients_equals_backward_client_by_client(
    build: Any, name: str, shape: tuple[int, ...], settings: dict[str, Any]
) -> None:
    vocabulary = TOKENS if name == "embedding_bag" else 0
    network = build(name, shape, CLASSES, vocabulary, **settings).double().train()
    parameters, buffers, inputs, labels = clients(network, shape)
    together = {key: value.clone() for key, value in buffers.items()}

    def loss(values: dict[str, Tensor], state: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(functional_call(network, (values, state), (x,)), y)

    gradients = vmap(grad(loss))(parameters, together, inputs, labels)

    for client in range(CLIENTS):
        network.load_state_dict({key: value[client] for key, value in parameters.items()}, strict=False)
        for key, value in network.named_buffers():
            value.copy_(buffers[key][client])
        network.zero_grad()
        functional.cross_entropy(network(inputs[client]), labels[client]).backward()
        for key, value in network.named_parameters():
            torch.testing.assert_close(gradients[key][client], value.grad, rtol=1e-10, atol=1e-10)
        # Running statistics are updated in place in the stacked buffers.
        for key, value in network.named_buffers():
            torch.testing.assert_close(together[key][client], value, rtol=1e-10, atol=1e-10)


def test_no_network_shares_a_parameter_between_two_names(build: Any) -> None:
    for name, shape, settings in NETWORKS:
        with torch.device("meta"):
            network = build(name, shape, CLASSES, TOKENS if name == "embedding_bag" else 0, **settings)
        named = list(network.named_parameters(remove_duplicate=False))
        assert len(named) == len({id(value) for _, value in named})
