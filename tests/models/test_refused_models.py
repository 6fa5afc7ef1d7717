"""Data and settings that a network cannot have."""

from typing import Any

import pytest

from fedtide.core import plugins
from fedtide.core.errors import SettingsError


@pytest.mark.parametrize(
    ("name", "shape", "vocabulary", "needs"),
    [
        ("mlp", (64,), 100, "images or vectors"),
        ("lenet", (1, 8, 8), 0, "images (channels, height, width) of at least 16 x 16 pixels"),
        ("cnn_5x5", (1, 15, 32), 0, "16 x 16"),
        ("cnn_leaky", (1, 12, 11), 0, "12 x 12"),
        ("cnn_svhn", (3, 7, 8), 0, "8 x 8"),
        ("resnet18", (784,), 0, "images"),
        ("preact_resnet18", (64,), 100, "images"),
        ("embedding_bag", (3, 32, 32), 0, "token ids"),
        ("cnn_1d", (1, 8, 8), 0, "series (channels, time)"),
    ],
)
def test_inputs_that_do_not_fit(build: Any, name: str, shape: tuple[int, ...], vocabulary: int, needs: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        build(name, shape, 10, vocabulary)
    message = str(refusal.value)
    assert message.startswith(f"model.name = {name!r} requires ")
    assert needs in message
    assert message.endswith(f"of shape {shape}")


@pytest.mark.parametrize(
    ("name", "settings", "key"),
    [
        ("mlp", {"widths": ()}, "widths"),
        ("mlp", {"widths": (10, 0)}, "widths"),
        ("resnet18", {"groups": 3}, "groups"),
        ("lenet", {"norm": "batch"}, "norm"),
    ],
)
def test_settings_that_make_no_network(name: str, settings: dict[str, Any], key: str) -> None:
    with pytest.raises(ValueError, match=key):
        plugins.load("models", name).Settings(**settings)
