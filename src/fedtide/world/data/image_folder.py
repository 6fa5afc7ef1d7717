"""Folders of images, one per class."""

import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fedtide.core.bounds import WHOLE
from fedtide.core.errors import SettingsError, shortened
from fedtide.world.adapters.arrays import pixels
from fedtide.world.adapters.tensors import from_tensors
from fedtide.world.data.base import DatasetPlugin, DatasetSettings
from fedtide.world.dataset import Dataset
from fedtide.world.splits.split import SplitSettings


class ImageFolder(DatasetPlugin):
    """Images in one folder per class, as torchvision's ``ImageFolder`` reads them: ``path/cat/7.png``.

    Classes are the folders, in sorted order. ``client`` is the part of an image's path below ``path`` that names its client:
    the number of a folder (0 is the class, 1 the folder in it, ...), or a regular expression, whose group is the name if it
    has one. Pixels are uint8, divided by 255 when they are used.
    """

    class Settings(DatasetSettings):
        name: str = "image_folder"
        path: str = Field("images", description="folder of the classes' folders")
        test: str | None = Field(
            None, description="folder of the test images; null: a share of every client's images is held out"
        )
        client: Annotated[int | str | None, WHOLE] = Field(
            None, description="part of the path that names the client: a number or a regular expression; null: unknown"
        )
        size: tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]] | None = Field(
            None, description="height and width to resize all images to; null: all have the same size"
        )
        channels: Literal[1, 3] = Field(3, description="1: gray; 3: red, green, blue")
        split: SplitSettings = Field(SplitSettings(), description="which images are held out without test images")

        @model_validator(mode="after")
        def _possible(self) -> Self:
            try:
                groups = re.compile(self.client).groups if isinstance(self.client, str) else 0
            except re.error as error:
                raise SettingsError(f"client = {self.client!r} is not a regular expression ({error})") from None
            if isinstance(self.client, int) and self.client < 0:
                raise SettingsError(f"client = {self.client} should be at least 0, or a regular expression")
            if groups > 1:
                raise SettingsError(f"client = {self.client!r} has {groups} groups; expected one, or none")
            return self

    settings: Settings

    def files(self) -> tuple[Path, ...]:
        folders = [Path(folder) for folder in (self.settings.path, self.settings.test) if folder is not None]
        walks = (walk for folder in folders for walk in os.walk(folder, followlinks=True))
        return tuple(sorted(Path(place, name) for place, _, names in walks for name in names))

    def read(self, raw: Path) -> Dataset:
        """Images uint8 [n, channels, height, width], in the order of their paths."""
        chosen = self.settings
        classes, train = self._read_folder("path", chosen.path)
        test = None
        if chosen.test is not None:
            others, test = self._read_folder("test", chosen.test)
            if others != classes:
                odd = min(set(others) ^ set(classes))
                raise SettingsError(f"data.test: class {odd!r} is in only one of {chosen.path} and {chosen.test}")
        return from_tensors(*train, test=test, classes=len(classes), split=chosen.split, name="image_folder")

    def _read_folder(self, setting: str, folder: str) -> tuple[list[str], tuple[Any, Any, Any]]:
        """Classes, and images, labels and clients."""
        from torchvision.datasets import ImageFolder as Images

        try:
            found = Images(folder)
        except OSError as error:  # no folder, no classes, or a class without images
            raise SettingsError(f"data.{setting} = {folder!r}: {' '.join(str(error).split())}") from None
        files = [Path(name) for name, _ in found.samples]
        clients = None if self.settings.client is None else [self._client(file.relative_to(folder)) for file in files]
        return found.classes, (self._images(files), [label for _, label in found.samples], clients)

    def _client(self, path: Path) -> str:
        wanted, name = self.settings.client, path.as_posix()
        if isinstance(wanted, int):
            folders = path.parent.parts
            if wanted >= len(folders):
                raise SettingsError(f"data.client = {wanted}: {name!r} has folders 0 to {len(folders) - 1} only")
            return folders[wanted]
        match = re.search(wanted or "", name)
        client = match[match.re.groups] if match else None
        if not client:
            raise SettingsError(f"data.client = {wanted!r} finds no client in {name!r}")
        return client

    def _images(self, files: list[Path]) -> NDArray[np.uint8]:
        chosen = self.settings
        images: NDArray[np.uint8] | None = None
        for place, file in enumerate(files):
            image = _read(file, chosen.channels, chosen.size)
            images = np.empty((len(files), *image.shape), dtype=np.uint8) if images is None else images
            if image.shape != images.shape[1:]:
                sizes = "{}x{}, the first one {}x{}".format(*image.shape[1:], *images.shape[2:])
                raise SettingsError(f"{file}: has height and width {sizes}; set data.size to resize all images")
            images[place] = image
        assert images is not None  # a class without images is refused
        return images


def _read(file: Path, channels: Literal[1, 3], size: tuple[int, int] | None) -> NDArray[np.uint8]:
    from PIL import Image

    try:
        with Image.open(file) as picture:
            return pixels(picture, channels, size)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise SettingsError(f"{file}: not a readable image ({shortened(str(error))})") from None
