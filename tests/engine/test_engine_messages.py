"""Local training and executors that a network or its inputs do not permit are refused in one line."""

from dataclasses import replace
from typing import Any

import pytest

from fedtide.core.errors import SettingsError
from fedtide.world.dataset import Dataset
from support import federation, images, settings, steady, vectors

REFUSED: list[tuple[dict[str, Any], Dataset, str]] = [
    (
        {"model": "cnn_svhn", "engine": {"executor": "stacked"}},
        images(),
        "engine.executor = 'stacked': the model has BatchNorm statistics",
    ),
    (
        {"local": {"crop": 4, "crop_padding": "reflect"}},
        images(side=4),
        "local.crop = 4: reflect padding of 4 pixels allows at most 3",
    ),
    ({"local": {"flip": 0.5}}, replace(vectors(), kind="image"), "local.flip = 0.5, local.crop = 0 require images"),
]


@pytest.mark.parametrize(("values", "data", "line"), REFUSED, ids=[line for *_, line in REFUSED])
def test_what_cannot_be_trained_is_refused_in_one_line(values: dict[str, Any], data: Dataset, line: str) -> None:
    with pytest.raises(SettingsError) as caught:
        federation(settings(**values), steady((5, 3), 1), data)
    (found,) = str(caught.value).splitlines()
    assert found.startswith(line)
