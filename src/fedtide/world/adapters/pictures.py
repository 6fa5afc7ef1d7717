"""Pictures as Pillow reads them become one tensor of 8-bit images: the same for folders, PyTorch and Hugging Face."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedtide.core.errors import SettingsError, shortened
from fedtide.core.plugins import OMIT_DEFAULT, SettingsModel
from fedtide.settings.params import parse

if TYPE_CHECKING:
    from PIL.Image import Image

_WHITE = 65535.0  # of 16 bits
_OPAQUE, _BACKGROUND = 255, (128, 128, 128, 255)  # shapes that are black or white are seen before gray


class PictureSettings(SettingsModel):
    """How pictures become images of one shape."""

    size: tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]] | None = Field(
        None, description="height and width to resize all images to; null: all have the same size"
    )
    channels: Literal[1, 3] | None = Field(
        None, description="1: gray; 3: red, green, blue; null: 3 if a training image has colors, else 1"
    )
    white_level: Annotated[float | None, OMIT_DEFAULT] = Field(
        None, gt=0, description="value of white in images of 16 or 32 bits or floats; null: 65535 in those of 16 bits"
    )


def is_picture(value: Any) -> bool:
    """Whether something is a picture of Pillow's, which is not imported for this."""
    return any(cls.__module__ == "PIL.Image" for cls in type(value).__mro__)


class Pictures:
    """Reads pictures one by one, those for training first; ``prefix`` comes before the names of settings in messages."""

    def __init__(self, options: Mapping[str, Any], prefix: str = "") -> None:
        self._settings: PictureSettings = parse(PictureSettings, options, "pictures")
        self._prefix = prefix

    def read(self, picture: Image | Callable[[], Image], place: str) -> NDArray[np.uint8]:
        """A picture, or the one that a function opens, as uint8 [1 or 3, height, width].

        Raises:
            SettingsError: it is damaged, or a value is not from 0 to that of white; the message begins with ``place``.
        """
        from PIL.Image import DecompressionBombError, Resampling
        from PIL.ImageOps import exif_transpose

        chosen = self._settings
        try:
            picture = picture() if callable(picture) else picture
            picture.load()
            with suppress(Exception):  # Pillow raises anything for damaged EXIF, which then says nothing
                picture = exif_transpose(picture)
            deep = picture.mode[0] in "IF"
            gray = chosen.channels == 1 or (chosen.channels is None and (deep or picture.mode in ("1", "L", "LA")))
            picture = self._of_8_bits(picture, place) if deep else self._opaque(picture)
            mode = "L" if gray else "RGB"
            picture = picture if picture.mode == mode else picture.convert(mode)
            if chosen.size is not None and picture.size != chosen.size[::-1]:
                picture = picture.resize(chosen.size[::-1], Resampling.BILINEAR)
        except SettingsError:
            raise
        except (OSError, ValueError, SyntaxError, DecompressionBombError) as error:
            raise SettingsError(f"{place}: not a readable image ({shortened(str(error))})") from None
        values = np.asarray(picture, dtype=np.uint8)
        return values[None] if values.ndim == 2 else np.ascontiguousarray(values.transpose(2, 0, 1))

    def _of_8_bits(self, picture: Image, place: str) -> Image:
        from PIL.Image import fromarray

        values, key = np.asarray(picture, dtype=np.float64), f"{self._prefix}white_level"
        low, high = values.min(), values.max()
        white = self._settings.white_level or (_WHITE if picture.mode.startswith("I;16") else None)
        if white is None or not 0 <= low <= high <= white:  # also if one is not a number
            found = f"values of mode {picture.mode} from {low:g} to {high:g}"
            cure = f"set {key} to that of white, such as 1, 255, 4095 or 65535 (allowed are 0 to {key})"
            raise SettingsError(f"{place}: {found}; {cure}")
        return fromarray(np.rint(values * (255 / white)).astype(np.uint8))

    def _opaque(self, picture: Image) -> Image:
        from PIL.Image import alpha_composite, new

        over = picture.convert("RGBA") if picture.has_transparency_data else None
        if over is None or over.getchannel("A").getextrema() == (_OPAQUE, _OPAQUE):
            return picture
        return alpha_composite(new("RGBA", over.size, _BACKGROUND), over)

    def stack(self, images: Iterable[NDArray[np.uint8]], count: int, place: Callable[[int], str]) -> NDArray[np.uint8]:
        """``count`` images that were read, of one size, as uint8 [n, 1 or 3, height, width]: 3 if one has colors.

        Pictures that are read afterwards get the channels of these. A SettingsError names the first one of another size.
        """
        stack: NDArray[np.uint8] = np.empty((0, 1, 1, 1), dtype=np.uint8)
        for row, image in enumerate(images):
            stack = stack if row else np.empty((count, *image.shape), dtype=np.uint8)
            if image.shape[1:] != stack.shape[2:]:
                sizes = "{}x{}, the first one {}x{}".format(*image.shape[1:], *stack.shape[2:])
                cure = f"set {self._prefix}size to resize all images"
                raise SettingsError(f"{place(row)}: has height and width {sizes}; {cure}")
            stack = stack.repeat(3, axis=1) if len(image) > stack.shape[1] else stack
            stack[row] = image  # also into three channels
        self._settings = self._settings.model_copy(update={"channels": stack.shape[1]})
        return stack
