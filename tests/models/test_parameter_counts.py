"""Published numbers of parameters."""

from typing import Any

import pytest
import torch

GRAY, RGB, TINY = (1, 28, 28), (3, 32, 32), (3, 64, 64)
PROJECTED = {"norm": "batch", "stem": "imagenet", "projection": True}
GROUPED = {"norm": "group", "groups": 2, "stem": "imagenet"}
CIFAR = {"norm": "batch", "stem": "cifar"}


@pytest.mark.parametrize(
    ("name", "shape", "classes", "settings", "count"),
    [
        ("softmax_regression", GRAY, 10, {}, 7_850),
        ("mlp", GRAY, 10, {}, 199_210),
        ("mlp", GRAY, 10, {"widths": (100, 100)}, 89_610),
        ("mlp", (784,), 10, {"widths": (200,)}, 159_010),
        ("lenet", RGB, 10, {}, 62_050),
        ("lenet", GRAY, 62, {}, 48_890),
        ("lenet", RGB, 10, {"norm": "none"}, 62_006),
        ("cnn_5x5", RGB, 10, {}, 797_962),
        ("cnn_svhn", RGB, 10, {}, 667_178),
        ("cnn_leaky", GRAY, 10, {}, 117_066),
        ("cnn_1d", (4, 24), 2, {}, 11_106),
        ("resnet18", RGB, 10, PROJECTED, 11_573_066),
        ("resnet34", TINY, 200, PROJECTED, 21_730_056),
        ("resnet18", RGB, 10, GROUPED, 11_181_642),
        ("resnet34", TINY, 200, GROUPED, 21_387_272),
        ("resnet18", RGB, 10, CIFAR, 11_173_962),
        ("preact_resnet18", RGB, 10, {}, 11_172_170),
        ("embedding_bag", (64,), 4, {}, 9_157_804),
    ],
)
def test_published_parameter_count(
    build: Any, name: str, shape: tuple[int, ...], classes: int, settings: dict[str, Any], count: int
) -> None:
    with torch.device("meta"):
        network = build(name, shape, classes, 30_522 if name == "embedding_bag" else 0, **settings)
    assert sum(parameter.numel() for parameter in network.parameters()) == count
    named = list(network.named_parameters(remove_duplicate=False))
    assert len(named) == len({id(value) for _, value in named}), "a parameter has two names"


@pytest.mark.parametrize(("norm", "buffers"), [("group", False), ("layer", False), ("batch", True)])
@pytest.mark.parametrize("name", ["resnet18", "preact_resnet18"])
def test_only_batch_norm_has_buffers_and_all_norms_have_the_same_parameters(
    build: Any, name: str, norm: str, buffers: bool
) -> None:
    with torch.device("meta"):
        default, network = build(name, RGB, 10), build(name, RGB, 10, norm=norm)
    shapes = [value.shape for value in network.parameters()]
    assert shapes == [value.shape for value in default.parameters()]
    assert bool(list(network.buffers())) == buffers
