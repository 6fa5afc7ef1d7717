"""What the networks compute, and what they refuse."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

GRAY = (1, 16, 16)
IMAGES = ("softmax_regression", "mlp", "lenet", "cnn_5x5", "cnn_leaky", "cnn_svhn", "resnet18", "preact_resnet18")


@pytest.fixture
def images() -> Tensor:
    return torch.randn(3, *GRAY, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", IMAGES)
def test_gray_images_give_logits_from_the_head_on_the_features(build: Any, images: Tensor, name: str) -> None:
    network = build(name, GRAY, 4).eval()
    features = network.features(images)
    logits = network(images)
    assert logits.shape == (3, 4)
    assert isinstance(network.head, nn.Linear)
    assert features.shape == (3, network.head.in_features)
    assert torch.equal(logits, network.head(features))
    outputs = network.outputs(images)
    assert torch.equal(outputs.logits, logits)
    assert torch.equal(outputs.features, logits if name == "softmax_regression" else features)


@pytest.mark.parametrize(
    ("name", "settings"), [("cnn_5x5", {}), ("cnn_leaky", {}), ("lenet", {}), ("lenet", {"norm": "none"})]
)
def test_pooling_before_relu_changes_neither_values_nor_gradients(
    build: Any, images: Tensor, name: str, settings: dict[str, Any]
) -> None:
    network = build(name, GRAY, 4, **settings).double()
    layers = list(network.body)
    for place in [i for i, layer in enumerate(layers) if isinstance(layer, nn.MaxPool2d)]:
        assert isinstance(layers[place + 1], nn.ReLU | nn.LeakyReLU)
        layers[place], layers[place + 1] = layers[place + 1], layers[place]
    published = nn.Sequential(*layers, network.head)
    values, expected = network(images.double()), published(images.double())
    assert torch.equal(values, expected)
    parameters = list(network.parameters())
    for got, wanted in zip(
        torch.autograd.grad(values.square().sum(), parameters),
        torch.autograd.grad(expected.square().sum(), parameters),
        strict=True,
    ):
        torch.testing.assert_close(got, wanted, rtol=0, atol=1e-12)


def test_svhn_contrast_is_the_hidden_layer_before_dropout(build: Any, images: Tensor) -> None:
    network = build("cnn_svhn", GRAY, 4)
    state = {name: value.clone() for name, value in network.named_buffers()}
    outputs = network.train().outputs(images)
    again = functional_call(network, state, (images,))
    assert outputs.features.shape == (3, 256)
    assert outputs.features.min() == 0.0
    dropped = network.dropout(outputs.features)
    assert not torch.equal(dropped, outputs.features)
    torch.testing.assert_close(outputs.logits, network.head(dropped))
    torch.testing.assert_close(again, outputs.logits)


def test_projection_feeds_the_classifier_without_relu(build: Any, images: Tensor) -> None:
    network = build("resnet18", GRAY, 4, projection=True).eval()
    features = network.features(images)
    assert features.shape == (3, 256)
    assert features.min() < 0
    first, _, second = network.projection
    torch.testing.assert_close(features, second(first(network.backbone(images)).clamp(min=0)))


@pytest.mark.parametrize(("name", "settings"), [("resnet18", {"stem": "cifar"}), ("preact_resnet18", {})])
def test_small_image_stems_keep_the_resolution(build: Any, name: str, settings: dict[str, Any]) -> None:
    with torch.device("meta"):
        network = build(name, (3, 32, 32), 10, **settings)
        seen = []
        for module in network.modules():
            if isinstance(module, nn.Conv2d) and module.kernel_size == (3, 3):
                module.register_forward_hook(lambda _module, _inputs, output: seen.append(tuple(output.shape[1:])))
        network(torch.empty(1, 3, 32, 32))
    stem_and_first_stage = [(64, 32, 32)] * 5
    assert seen == [*stem_and_first_stage, *[(128, 16, 16)] * 4, *[(256, 8, 8)] * 4, *[(512, 4, 4)] * 4]


def test_layer_norm_standardizes_each_image_over_channels_and_pixels(build: Any) -> None:
    network = build("preact_resnet18", GRAY, 4)
    maps = torch.randn(2, 64, 3, 3, dtype=torch.float64) * 3 + 1
    flat = maps.flatten(1)
    expected = (flat - flat.mean(1, keepdim=True)) / (flat.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt()
    torch.testing.assert_close(network.stages[0][0].norm1.double()(maps), expected.view_as(maps))


def test_preactivation_block_shortcut_is_the_identity_or_sees_the_activated_input(build: Any) -> None:
    network = build("preact_resnet18", GRAY, 4)
    plain, wider = network.stages[0][1], network.stages[1][0]
    maps = torch.randn(2, 64, 4, 4)
    for block in (plain, wider):
        nn.init.zeros_(block.conv2.weight)
    assert torch.equal(plain(maps), maps)
    assert torch.equal(wider(maps), wider.shortcut(wider.norm1(maps).clamp(min=0)))


@pytest.mark.parametrize("name", ["lenet", "preact_resnet18"])
def test_kaiming_initialization(build: Any, name: str) -> None:
    network = build(name, (3, 32, 32), 10)
    assert all(not layer.bias.any() for layer in network.modules() if isinstance(layer, nn.Linear))
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            variance = 2 / (layer.out_channels * layer.kernel_size[0] * layer.kernel_size[1])
            count = layer.weight.numel()
            assert abs(layer.weight.square().mean().item() / variance - 1) < 5 * (2 / count) ** 0.5


@pytest.mark.parametrize("kernel", [1, 2, 3])
def test_convolutions_over_time_are_sums_over_neighbors(build: Any, kernel: int) -> None:
    network = build("cnn_1d", (2, 5), 4, widths=(3,), kernel=kernel).double()
    inputs = torch.randn(2, 2, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    convolution, _ = network.body
    padded = functional.pad(inputs, (kernel // 2, kernel // 2))
    sums = torch.stack(
        [
            torch.einsum("oik,bik->bo", convolution.weight, padded[:, :, at : at + kernel]) + convolution.bias
            for at in range(padded.shape[2] - kernel + 1)
        ]
    )
    features = sums.clamp(min=0).mean(0)
    torch.testing.assert_close(network.features(inputs), features)
    torch.testing.assert_close(network(inputs), features @ network.head.weight.T + network.head.bias)


class TestEmbeddingBag:
    ids = torch.tensor([[3, 5, 3, 0, 0], [1, 2, 4, 5, 6], [0, 0, 0, 0, 0]])

    def test_features_are_the_mean_over_real_tokens(self, build: Any) -> None:
        network = build("embedding_bag", (5,), 4, 7, size=6).double()
        table = network.embedding.weight
        features = network.features(self.ids)
        torch.testing.assert_close(features[0], (2 * table[3] + table[5]) / (3 + 1e-6))
        torch.testing.assert_close(features[1], table[[1, 2, 4, 5, 6]].sum(0) / (5 + 1e-6))
        assert not features[2].any()

    def test_padding_row_starts_at_zero_and_has_no_gradient(self, build: Any) -> None:
        network = build("embedding_bag", (5,), 4, 7, size=6)
        assert not network.embedding.weight[0].any()
        with torch.no_grad():
            network.embedding.weight[0] = 9.0
        functional.cross_entropy(network(self.ids), torch.tensor([0, 1, 2])).backward()
        gradient = network.embedding.weight.grad
        assert not gradient[0].any()
        assert gradient[1:].abs().sum(1).gt(0).all()


@pytest.mark.parametrize(
    ("name", "smallest"), [("lenet", 16), ("cnn_5x5", 16), ("cnn_leaky", 12), ("cnn_svhn", 8), ("resnet18", 1)]
)
def test_the_smallest_image_that_is_not_refused_works(build: Any, name: str, smallest: int) -> None:
    network = build(name, (1, smallest, smallest), 3).eval()
    assert network(torch.zeros(1, 1, smallest, smallest)).shape == (1, 3)
