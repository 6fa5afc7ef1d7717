from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from fedtide.training.engine import augment
from fedtide.training.engine.augment import Augmentation

PADDINGS: tuple[Literal["zeros", "reflect"], ...] = ("zeros", "reflect")
KEY = st.integers(-(2**63), 2**63 - 1)


def batch(count: int, channels: int, height: int, width: int) -> Tensor:
    """Images whose pixels are all different and not zero."""
    return torch.arange(1.0, count * channels * height * width + 1).view(count, channels, height, width)


def keys_of(count: int, start: int = 0) -> Tensor:
    return torch.arange(start, start + count, dtype=torch.int64)


def padded(image: Tensor, crop: int, padding: str) -> Tensor:
    mode = {"zeros": "constant", "reflect": "reflect"}[padding]
    return functional.pad(image.unsqueeze(0), (crop, crop, crop, crop), mode=mode)[0]


@settings(max_examples=30, deadline=None)
@given(
    keys=st.lists(KEY, min_size=1, max_size=4),
    height=st.integers(3, 6),
    width=st.integers(3, 6),
    crop=st.integers(0, 2),
    padding=st.sampled_from(PADDINGS),
)
def test_each_output_is_a_window_of_the_padded_image_or_its_mirror(
    keys: list[int], height: int, width: int, crop: int, padding: Literal["zeros", "reflect"]
) -> None:
    images = batch(len(keys), 2, height, width)
    augmented = Augmentation(0.5, crop, 0.5, padding)(images, torch.tensor(keys))
    assert augmented.shape == images.shape
    for image, output in zip(images, augmented, strict=True):
        windows = [
            padded(side, crop, padding)[:, top : top + height, left : left + width]
            for side in (image, image.flip(-1))
            for top in range(2 * crop + 1)
            for left in range(2 * crop + 1)
        ]
        assert any(torch.equal(output, window) for window in windows)


@settings(max_examples=30, deadline=None)
@given(keys=st.lists(KEY, min_size=2, max_size=6), place=st.integers(0, 5))
def test_an_image_is_augmented_alike_in_any_batch(keys: list[int], place: int) -> None:
    place %= len(keys)
    images, tensor = batch(len(keys), 2, 5, 5), torch.tensor(keys)
    augmentation = Augmentation()
    together = augmentation(images, tensor)
    alone = augmentation(images[place : place + 1], tensor[place : place + 1])
    assert torch.equal(together[place], alone[0])
    assert torch.equal(augmentation(images.flip(0), tensor.flip(0)).flip(0), together)


def test_shares_of_flipped_and_cropped_images_and_offsets() -> None:
    count, crop = 6000, 1
    image = torch.arange(1.0, 10.0).view(1, 1, 3, 3)
    windows = functional.pad(torch.cat([image, image.flip(-1)]), [crop] * 4).unfold(2, 3, 1).unfold(3, 3, 1)
    augmented = Augmentation(flip=0.25, crop=crop, crop_probability=0.8)(image.expand(count, 1, 3, 3), keys_of(count))
    same = (augmented.view(count, 1, 1, 1, 3, 3) == windows.squeeze(1)).all(-1).all(-1)
    shares = same.double().mean(0)
    moved = torch.full((3, 3), 0.8 / 9, dtype=torch.float64)
    moved[1, 1] += 0.2
    expected = torch.stack([0.75 * moved, 0.25 * moved])
    assert shares.sum() == pytest.approx(1.0, abs=1e-12)
    assert ((shares - expected).abs() < 5 * (expected * (1 - expected) / count).sqrt()).all()


def test_the_largest_draw_reaches_the_last_offset_and_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(augment, "hashed_uniform", lambda key, count: torch.full((*key.shape, count), 1 - 2**-24))
    for crop in range(1, 65):
        image = batch(1, 1, 1, crop + 1)
        moved = Augmentation(flip=0.0, crop=crop)(image.expand(1, 1, crop + 1, crop + 1), keys_of(1))
        expected = torch.zeros(1, 1, crop + 1, crop + 1)
        expected[..., 0, 0] = image[..., -1]
        assert torch.equal(moved, expected)


def test_the_input_is_left_alone_and_the_dtype_kept() -> None:
    for dtype in (torch.float32, torch.float64, torch.uint8):
        images = batch(3, 1, 5, 5).to(dtype)
        before = images.clone()
        assert Augmentation()(images, keys_of(3)).dtype == dtype
        assert torch.equal(images, before)
