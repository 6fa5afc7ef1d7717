"""Random flips and crops of image batches, a pure function of each image and its key."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedtide.core.errors import SettingsError
from fedtide.core.randomness import hashed_uniform


@dataclass(frozen=True)
class Augmentation:
    """Horizontal flip, then a crop of the original size from the padded image; depends only on the image and its key.

    Attributes:
        flip: probability that an image is mirrored left to right.
        crop: padding in pixels on every side; the window's offsets are uniform on 0..2 * crop, per axis.
        crop_probability: probability that an image is cropped.
        crop_padding: ``zeros``, or ``reflect`` (mirrored at the edge, without repeating it).
    """

    flip: float = 0.5
    crop: int = 4
    crop_probability: float = 1.0
    crop_padding: Literal["zeros", "reflect"] = "zeros"

    def check(self, input_shape: tuple[int, ...]) -> None:
        """Refuse samples that are not (channels, height, width), or too small for reflect padding."""
        if len(input_shape) != 3:
            raise SettingsError(
                f"local.flip = {self.flip}, local.crop = {self.crop} require images (channels, height, width), but "
                f"samples have shape {input_shape}; set both to 0"
            )
        side = min(input_shape[1:])
        if self.crop_padding == "reflect" and self.crop >= side:
            raise SettingsError(f"local.crop = {self.crop}: reflect padding of {side} pixels allows at most {side - 1}")

    def __call__(self, images: Tensor, keys: Tensor) -> Tensor:
        """Augmented copies of images [B, C, H, W] of any dtype, by int64 keys [B]."""
        height, width = images.shape[2:]
        flipped, cropped, down, right = hashed_uniform(keys, 4).unbind(-1)
        moved = cropped < self.crop_probability
        rows, row_inside = self._source(height, moved, down)
        columns, column_inside = self._source(width, moved, right)
        columns = torch.where((flipped < self.flip).unsqueeze(1), width - 1 - columns, columns)
        pixels = (rows.unsqueeze(2) * width + columns.unsqueeze(1)).flatten(1).unsqueeze(1)
        gathered = images.flatten(2).gather(2, pixels.expand(-1, images.shape[1], -1)).view(images.shape)
        inside = row_inside.unsqueeze(2) & column_inside.unsqueeze(1)
        return gathered.masked_fill(~inside.unsqueeze(1), 0)

    def _source(self, side: int, moved: Tensor, draw: Tensor) -> tuple[Tensor, Tensor]:
        """Along one axis: the index [B, side] each output pixel is copied from, and whether it lies inside the image."""
        # The product never rounds up to 2 * crop + 1, no power of two: the largest draw is 2^-24 below one.
        offset = (draw * (2 * self.crop + 1)).to(torch.int64) - self.crop
        index = torch.arange(side, device=draw.device) + torch.where(moved, offset, 0).unsqueeze(1)
        if self.crop_padding == "zeros":
            return index.clamp(0, side - 1), (index >= 0) & (index < side)
        return (side - 1) - ((side - 1) - index.abs()).abs(), torch.ones_like(index, dtype=torch.bool)
