"""Pictures as uint8 arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL.Image import Image

_GRAY = ("1", "L", "I", "I;16", "F", "LA")
_MODES: dict[int, str] = {1: "L", 3: "RGB"}


def pixels(
    picture: Image, channels: Literal[1, 3] | None = None, size: tuple[int, int] | None = None
) -> NDArray[np.uint8]:
    """A picture as uint8 [channels, height, width].

    Args:
        picture: as Pillow reads it. channels: 1 for gray, 3 for red, green and blue; by default what the picture has.
        size: height and width to resize it to (bilinear).

    Raises:
        OSError: the picture is damaged.
    """
    found = _MODES[channels or (1 if picture.mode in _GRAY else 3)]
    picture = picture if picture.mode == found else picture.convert(found)
    if size is not None and picture.size != (size[1], size[0]):
        from PIL.Image import Resampling

        picture = picture.resize((size[1], size[0]), Resampling.BILINEAR)
    values = np.asarray(picture, dtype=np.uint8)
    return values[None] if values.ndim == 2 else np.ascontiguousarray(values.transpose(2, 0, 1))


def is_picture(value: Any) -> bool:
    """Whether something is a picture of Pillow's, which is not imported for this."""
    return any(cls.__module__ == "PIL.Image" for cls in type(value).__mro__)
