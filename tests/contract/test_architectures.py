"""Published architectures train: two rounds each, on random images."""

from itertools import cycle
from typing import Any

import pytest

from support import federation, images, run_rounds, settings, steady

ARCHITECTURES: dict[str, dict[str, Any]] = {
    "squeezenet1_1": {},  # the head is a convolution with more behind it
    "shufflenet_v2_x0_5": {},  # BatchNorm
    "VisionTransformer": {
        "image_size": 32, "patch_size": 16, "num_layers": 1, "num_heads": 2, "hidden_dim": 8, "mlp_dim": 8, "dropout": 0.1,
    },  # LayerNorm, attention, dropout
    "resnet18": {},
    "mobilenet_v3_small": {},
    "efficientnet_b0": {},  # stochastic depth
    "densenet121": {},
    "SwinTransformer": {
        "patch_size": [4, 4], "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 2], "window_size": [2, 2],
        "stochastic_depth_prob": 0.1,
    },  # buffers of integers
}  # fmt: skip
ALGORITHMS = ("fedavg", "scaffold", "moon")


def rounds_of(architecture: str, arguments: dict[str, Any], algorithm: str) -> list[Any]:
    """Records of two rounds of two clients."""
    model = {"name": "torchvision", "architecture": architecture, "arguments": arguments}
    if architecture[0].isupper():
        model = {"name": "module", "path": f"torchvision.models:{architecture}", "arguments": arguments}
    local = {"steps": 1, "batch_size": 4, "lr": 1e-3}
    data = images(count=8, side=32, channels=3)
    return run_rounds(federation(settings(model=model, algorithm=algorithm, local=local), steady((4, 4), 2), data))[1]


@pytest.mark.slow
@pytest.mark.parametrize(("architecture", "algorithm"), zip(ARCHITECTURES, cycle(ALGORITHMS), strict=False))
def test_an_architecture_trains(architecture: str, algorithm: str) -> None:
    assert len(rounds_of(architecture, ARCHITECTURES[architecture], algorithm)) == 2
